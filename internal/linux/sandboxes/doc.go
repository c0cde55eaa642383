// Package sandboxes is the common part of the drivers native, oci and vm, which run an agent below
// a process of this host.
//
// These drivers report and refuse the same limits with the same errors, and release the resources
// of a sandbox in the same order: processes, cgroup, ids, image. Those that save sandboxes describe
// the states alike.
package sandboxes
