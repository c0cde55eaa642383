// Package cgroup bounds and measures sandboxes with control groups, version 1,
// version 2, or both at once (controllers on one, the rest on the other).
//
// It finds a place where this process may make groups (Detect), says for each
// limit whether that place enforces it and, where not, what is missing, and
// makes one group a sandbox in it (Create). Groups carry the name their owner
// gives them, so what a killed owner left behind can be found (Leftovers).
//
// It is built for speed, because making a group is part of every execution:
// moving a finished process into a group makes the kernel wait for a grace
// period of many milliseconds, so the first process is instead born in it. On
// version 2 the kernel clones into a group (FD); on version 1 the thread that
// forks enters the groups first and leaves them afterwards (EnterThread), which
// takes microseconds.
//
// Nothing is exceeded silently: a limit that was accepted has been written.
package cgroup
