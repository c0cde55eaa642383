// Package native is the default driver. It creates sandboxes from Linux namespaces and needs
// nothing to be installed. Each sandbox has new user, mount, PID, network, IPC, UTS and cgroup
// namespaces, a root of the host's own programs or of an image, private bounded file systems in
// memory for everything that programs can write, and package agent as PID 1.
//
// The layers between a program and the host:
//
//   - an empty capability bounding set in every namespace
//   - if the daemon is root: a uid that no other sandbox and no user of the host has
//   - a system-call filter (seccomp)
//   - a root without the host's /root, /home and /var
//   - Landlock
//   - no network but a private loopback; if the Spec asks for it, also a TUN device of a TCP/IP
//     stack in another process (package egress)
//   - cgroup limits or rlimits
//
// They do not protect from a fault of the host's kernel in the system calls that the filter allows;
// see SECURITY.md.
//
// A sandbox is first computed as data (plan_linux.go), and then built by the driver
// (resources_linux.go) and the agent. A small child process of the daemon, which does not grow with
// it, forks the agents (package spawn). To destroy a sandbox the driver kills the agent: the kernel
// kills a PID namespace with its PID 1 (pid_namespaces(7)). Where the host allows it, a sandbox for
// one program has no agent: it is in a slot (package slot), where the program starts
// (slots_linux.go) or a copy of a warm Python enters (once_linux.go).
//
// The driver works as root and as an ordinary user. Limits are enforced by cgroup v2 or v1 if they
// can be used, otherwise by rlimits and a watchdog; Caps returns which. The driver creates no files
// on the host. A killed daemon leaves empty cgroups and, for a moment, agents that are being
// killed. Both have the daemon's id in their names, by which Collect finds them.
package native
