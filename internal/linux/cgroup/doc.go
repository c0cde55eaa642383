// Package cgroup puts sandboxes into control groups (cgroups(7)), which limit and count a sandbox's
// memory, CPU time and processes. It supports version 2, version 1, and hosts with both.
//
// # Invariants
//
//   - Detect finds the hierarchies in which this process may create groups, and verifies each by
//     creating one. For a controller without one it gives the reason and a fix
//     (Manager.Controllers). Manager.Caps claims only what was verified.
//   - A Group has all its limits before its first process. If a limit cannot be written, Create
//     fails and removes the group; no limit is dropped or weakened silently.
//   - Groups are created below the group of this process, or as near to it as possible, so that
//     limits on the daemon apply to its sandboxes too.
//   - Out-of-memory kills, peak memory and CPU time are the kernel's counters.
//   - A group's name contains the daemon's ("INSTANCE.ID"), so that groups of a killed daemon can
//     be identified and removed (Manager.Leftovers). The last daemon to close removes the parent
//     directory, "sandbar".
//
// # Putting a process into a group
//
// Writing a process id to cgroup.procs waits for an RCU grace period, about 10 ms. Group.Start
// avoids that. In version 2 it clones the process into the group (CLONE_INTO_CGROUP, clone(2)). In
// version 1 it moves the cloning thread into the group for the duration of the clone, through the
// tasks file, which takes microseconds.
//
// # Memory and the OOM killer
//
// The memory limit includes swap if the kernel accounts swap: a sandbox then has no swap (version
// 2), or memory and swap share one limit (version 1). If the kernel does not account swap and the
// host has some, Caps.MemoryExact is false and a note says so.
//
// memory.oom.group stays 0: the kernel kills the largest process of the group, not all of them. The
// sandbox's small init process is in the same group and must survive to report how its programs
// ended. The limit holds whichever process is killed, and the kernel counts each kill.
//
// Cgroups exist on Linux only; on other systems the package is empty.
package cgroup
