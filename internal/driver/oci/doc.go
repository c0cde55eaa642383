// Package oci makes sandboxes with a container runtime of the Open Container
// Initiative: runc, crun, or runsc, which is gVisor. One container is one
// sandbox, with package agent as its first program, so everything that concerns
// programs, files and ports is as with every other driver.
//
// The runtime itself gets no right over the host. The driver starts a stage
// (agent.ModeStage) as the first process of user, mount and PID namespaces of
// its own: as root in a range of ids that nobody else has, and otherwise as the
// daemon's one user. The stage builds the container's root from the same tables
// as the native driver does (package policy), writes the bundle, and becomes the
// runtime, which makes a container within. So a fault of the runtime is no fault
// of the host's, nobody but the stage ever sees its mounts, bundle and state, and
// the end of that one process, which the daemon's end brings about as well, is
// the end of all of it. The only things that can remain are empty control
// groups, which carry the daemon's name.
//
// What the driver promises beyond package driver: the container is made from the
// configuration that package oci computes, which is the whole of what the runtime is
// told; its processes are in the sandbox's control group from their first
// moment; and whatever the runtime does, Create ends when its context does.
//
// With gVisor a program's system calls are answered by gVisor's own kernel in
// user space. Descriptors do not pass through it, so that output travels in
// frames; memory is held by the agent, and the sandbox with its kernel by the
// control group; processes are held by that kernel.
package oci
