// Package local runs programs as plain subprocesses of the daemon. It is for
// trusted code: there is no boundary at all.
//
// A program of this driver has the daemon's user, the host's files, network,
// processes and devices. What the driver does keep is the shape of a sandbox,
// so that everything above it works as it does elsewhere:
//
//   - Each sandbox has a private directory below Host.RuntimeDir with a home and
//     a temporary directory. It stands for sandbar.DefaultDir: programs start
//     there, HOME and TMPDIR name it, relative paths of FS and Cmd.Dir begin
//     there, and sandbar.DefaultDir itself (and what is below it) means it in
//     FS and Cmd.Dir. Every other absolute path is the host's own. Arguments of
//     programs are never rewritten: a program finds its files by relative paths.
//   - The daemon's environment is not inherited, apart from the few variables
//     that tell where programs are and which language to speak (see inherited),
//     so a token of the daemon does not leak by accident.
//   - Every program starts in a session of its own. Destroy ends the whole tree,
//     and KillTree that of one program.
//     On Linux that includes what left the session and ignores signals: programs
//     carry a mark in their environment and are looked for in /proc. A process
//     that cleared its environment, left its session and lost its parent is not
//     found; this is why the driver claims no boundary for processes. On darwin
//     groups and parents are followed, on Windows a job object holds the tree.
//   - When the daemon dies the programs it started die with it (Linux: the
//     parent-death signal; Windows: the job). What outlives that is found by
//     Collect, by the mark and by the lock of the directory.
//
// Limits: only Files is held, by rlimit on Linux. A Spec that sets another one
// is refused unless it has AllowDegraded. So that the rlimit is there before
// the program's first instruction, the program is started under ptrace, stopped
// at exec and let go; a set-user-ID program therefore gains nothing.
package local
