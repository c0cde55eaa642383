// Package pid1 does the duties of the first process of a container or a machine. Orphans become
// children of PID 1 and stay zombies until PID 1 reaps them, and a PID namespace does not end
// before its last zombie is reaped (pid_namespaces(7)). A program that waits for particular
// children cannot wait for any child at the same time, so the program runs as a child of a small
// PID 1.
//
// The program in the child behaves as everywhere else: it has the same arguments, environment,
// streams and terminal, receives the same signals, and its exit code is the container's.
package pid1
