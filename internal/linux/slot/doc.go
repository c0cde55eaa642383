// Package slot makes sandboxes for one program each without an agent.
//
// A slot is a small permanent process that the spawner clones (package interp). It owns a user
// namespace with a range of ids, its cgroups and a mount namespace, whose root has only what
// sandboxes bind. For each sandbox it clones a first process in new mount, PID, network, IPC and
// UTS namespaces. That process builds the sandbox as an agent would, from the same plan
// (wire.Setup): limits, root, Landlock, system-call filters. It receives a job (the streams'
// descriptors by SCM_RIGHTS, all else in the shared memory), starts the program by vfork(2), reaps
// all processes and reports their end. When it exits, the kernel kills what is left of the PID
// namespace, and the slot reports that. If Plan.Enter is set, the first process passes its
// namespaces, and another process that has entered them becomes the program.
//
// None of these processes has a Go runtime: they execute lists of system calls that this package
// writes. A list has names of its steps for errors.
//
// A sandbox of a slot cannot do more than run its one program: it has no file operations, no ports,
// no terminal, and no second program.
package slot
