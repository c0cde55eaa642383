// Package local runs programs as plain subprocesses of the daemon. It is for trusted code only:
// there is no boundary.
//
// A program of this driver has the daemon's user, and the host's files, network, processes and
// devices. The driver only provides the form of a sandbox, so that the layers above work as with
// other drivers:
//
//   - Each sandbox has a private directory below Host.RuntimeDir with a home and a temporary
//     directory. The home stands for sandbar.DefaultDir: programs start there, HOME and TMPDIR name
//     the two, relative paths of FS and Cmd.Dir start there, and sandbar.DefaultDir itself (and
//     paths below it) means it in FS and Cmd.Dir. Every other absolute path is the host's.
//     Arguments are never rewritten: programs must use relative paths for their files.
//   - Programs do not inherit the daemon's environment, except for a few variables for paths and
//     locale (see inherited), so that a token of the daemon does not leak by accident.
//   - Every program starts in a session of its own. Destroy kills all its descendants, and KillTree
//     those of one program. On Linux that includes processes that left the session and ignore
//     signals: programs have a tag in their environment, by which the driver finds them in /proc.
//     A process that has cleared its environment, left its session and lost its parent is not
//     found, so the driver claims no boundary for processes. On darwin it follows groups and
//     parents; on Windows a job object contains the descendants.
//   - When the daemon dies, the programs that it started die too (Linux: the parent-death signal;
//     Windows: the job). Collect finds what survives, by the tag and by the lock of the directory.
//
// Limits: only Files is enforced, by an rlimit on Linux. A Spec with another limit is refused
// unless it has AllowDegraded. So that the rlimit is set before the program's first instruction,
// the program starts under ptrace(2), stops at execve(2), and is then detached. As a consequence
// set-user-ID programs gain no rights.
package local
