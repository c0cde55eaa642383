// Package cgroup puts sandboxes into control groups of the Linux kernel, which
// bound and count the memory, processor time and processes of a sandbox as a
// whole. It speaks version 2, version 1, and hosts that mount both.
//
// # What it promises
//
//   - Detect looks for a place where this process may make groups and proves
//     it by making one. Where there is none it says why and what to do, for
//     each controller (Manager.Controllers), and Manager.Caps claims only what
//     was proved.
//   - A Group has all its limits before the first process is in it. A limit
//     that cannot be written is an error and nothing is left behind; no limit
//     is dropped or weakened in silence.
//   - Groups are made below the group this process is in, or as near to it as
//     can be, so that limits put on the daemon hold for its sandboxes too.
//   - Out-of-memory kills, peak memory and processor time come from the
//     kernel's counters.
//   - Groups carry the name of the daemon that made them ("INSTANCE.ID"), so
//     that those of a daemon that was killed can be told apart and removed
//     (Manager.Leftovers). The directory that holds all groups, "sandbar",
//     goes when the last daemon closes.
//
// # Getting a process in
//
// Moving a process by writing its number to cgroup.procs waits for a grace
// period of the whole kernel, some 10 ms. Group.Start avoids it both ways: on
// version 2 the process is cloned straight into the group; on version 1 the
// thread that clones it joins the group for that moment, which takes
// microseconds, and the child is born there.
//
// # Memory and the out-of-memory killer
//
// The memory limit counts swap: where the kernel accounts swap a sandbox gets
// none (version 2) or memory and swap share one limit (version 1). Where it
// does not, and swap is on, Caps.MemoryExact is false and says so in a note.
//
// memory.oom.group stays 0: the kernel kills the largest process of the group,
// not all of it. The sandbox's small process 1 lives in the same group and
// must survive to tell how its programs ended. Nothing is lost by that: the
// limit holds whoever is killed, and each kill is counted.
//
// Only Linux has control groups; elsewhere this package is empty.
package cgroup
