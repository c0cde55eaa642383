// Package vm creates sandboxes that are virtual machines: each has its own Linux kernel, and the
// agent is its first process. Package guest prepares kernel and root, package qemu runs the
// machines.
//
// A template is the snapshot of a machine that has booted and waits for its first request. There is
// one for each root, kernel, monitor and size. Create restores it: the machines of a template share
// its memory copy-on-write. Before anything runs in a restored machine, the agent gets a new seed,
// the time and new names, so that machines of one snapshot differ.
//
// The monitor process is confined like a program of the native driver: a user of its own, no
// capabilities, namespaces of its own with the libraries it needs, a system-call filter, and the
// sandbox's cgroup. It ends with the daemon. The memory of the machine is the sandbox's memory
// limit and a reserve for the guest's kernel.
//
// Besides what package driver requires:
//
//   - A template never runs a user's code. Its files are read-only, appear whole or not at all, and
//     are compared with their digests before a daemon uses them.
//   - A template that takes long to boot is booted once, whatever the number of callers, and the
//     boot goes on if their contexts end.
//   - What a guest reports is never used for a limit.
package vm
