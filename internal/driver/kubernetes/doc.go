// Package kubernetes makes each sandbox a pod of a Kubernetes cluster. The daemon is inside the
// cluster, or anywhere from where it reaches the API server and the addresses of pods.
//
// A pod has two containers. In the first, with the image of the sandbox, package agent is the first
// program and has the same tasks as in every sandbox: it starts programs, accesses files and dials
// ports. The second is package porter, which connects the agent with the daemon. The connection is
// TCP to the pod's address with TLS, in which both sides prove that they have the daemon's keys.
// The driver uses neither exec nor attach nor logs, so nothing of a sandbox passes through the API
// server. Both programs are in one image, an image volume of the pod or copied by an init
// container.
//
// A daemon has a Lease object that it renews. All its objects refer to it as their owner: the pods,
// the Secret with the keys, and a NetworkPolicy. If the daemon dies, its connections end, and with
// them the agents and all programs. Any other daemon deletes the expired Lease, and Kubernetes then
// removes the objects. Nothing else is stored.
//
// What holds a sandbox:
//
//   - The pods fulfil the pod security standard "restricted", and have a read-only root and no
//     service account's token. The agent adds the system-call filter of package policy, and
//     Landlock.
//   - The pod's cgroup holds memory and processors. Every pod has a user id of its own, so that
//     RLIMIT_NPROC, which the kernel counts by user, holds the number of processes. The writable
//     directories are memory with a size.
//   - On gVisor all containers of a pod run in one kernel in user space, which is in the pod's
//     cgroup. The agent's watchdog holds the memory of programs, and that cgroup all memory.
//   - New makes a pod to try these limits out. What does not hold there counts as not enforced.
//   - The NetworkPolicy denies connections from and to programs. Not every network of a cluster
//     obeys policies, so New makes a canary, a pod that tries to reach what a program must not.
//     Without the proof that the policy holds, a Spec needs AllowDegraded.
//
// Programs see the pod's interface, and files of /proc that tell about the node (config.gz,
// zoneinfo, buddyinfo, tty, the boot id): a pod cannot ask its runtime to hide them.
//
// The driver refuses what nothing holds: inodes, weights of processors, and a network.
package kubernetes
