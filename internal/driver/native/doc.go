// Package native is the default driver: Linux namespaces, with nothing to
// install. Every sandbox is fresh user, mount, PID, network, IPC, UTS and
// cgroup namespaces, a read-only root built from the host's own programs, one
// bounded private tmpfs, and package agent as PID 1 in it.
//
// What stands between a program and the host, each layer enough alone for most
// attacks: no capability in any namespace, another uid than any user of the
// host (where the daemon is root), a system-call filter, a root that holds
// nothing of /root, /home or /var, Landlock, no network but a private loopback
// and, if asked for, a device that leads to a stack in the daemon (package
// egress), and cgroup or rlimit bounds. What that does not protect from is a fault of
// the host's kernel within the calls the filter allows; SECURITY.md says more.
//
// How a sandbox is made is computed first, as data (plan_linux.go), and then
// applied (box_linux.go, and by the agent inside). The agents are forked by a
// small process of the driver's own (spawn_linux.go), which does not grow as the
// daemon does. How a sandbox ends is simple: the agent is killed, and the kernel
// ends a PID namespace with its PID 1.
//
// It works as root and as an ordinary user. Limits are held by cgroup v2 or v1
// where one can be used, otherwise by rlimits and a watchdog; Caps tells which.
// It keeps no file outside of the sandboxes: what a killed daemon leaves is
// empty cgroups and, at worst, an agent about to die, and both carry the
// daemon's identity in their names so that Collect finds them.
package native
