// Package cluster runs a private Kubernetes for tests: unmodified control plane, kubelets,
// containerd, runc and gVisor, which "make cluster" has built. It has one or two nodes.
//
// The cluster has network, mount and PID namespaces of its own. It has no route out of them, and
// the host has none into them: a test binary runs inside the cluster's network namespace (see
// Main). All processes end with the first process of the PID namespace, which ends with the process
// that called Start. All files are in one temporary directory, and the cgroups of pods in one
// cgroup for each node. Nothing remains after Stop. Start removes the files and cgroups of test
// processes that were killed.
//
// A test calls testenv.Need(t, testenv.Cluster) first.
package cluster

// Prefix is the prefix of the names of a cluster's directory and cgroups, and so of paths in the
// arguments of its processes.
const Prefix = "sbkube-"
