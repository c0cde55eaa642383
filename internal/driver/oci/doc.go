// Package oci creates sandboxes with a container runtime of the Open Container Initiative: runc,
// crun, or runsc (gVisor). Each sandbox is one container, whose first program is package agent.
//
// The runtime has no privileges on the host. The driver starts a stage (agent.ModeStage) as the
// first process of new user, mount and PID namespaces. It is root there, and on the host it has ids
// that no other sandbox and no user has. The stage builds the container's root from the same tables
// as the native driver (package policy), writes the bundle and executes the runtime, which creates
// the container inside these namespaces. So a fault of the runtime does not affect the host.
// Mounts, bundle and state exist only in the stage's mount namespace, and all processes end with
// the stage, which ends with the daemon. A killed daemon leaves at most empty cgroups, with the
// daemon's id in their names.
//
// Besides what package driver requires:
//
//   - The container depends only on the configuration that package oci computes.
//   - The container's processes are in the sandbox's cgroup from their first instruction.
//   - Create returns when its context ends, whatever the runtime does.
//
// With gVisor, its kernel in user space handles the system calls of programs. Descriptors cannot be
// passed through it, so output is sent in frames. The agent enforces the memory limit of programs,
// gVisor's kernel the limit of processes, and the cgroup limits the memory of the programs and
// gVisor's kernel together.
package oci
