// Package sandboxes is the common part of the drivers native and oci, which create sandboxes from
// namespaces and cgroups of this host and run the agent in them.
//
// Both drivers report and refuse the same limits with the same errors, and both release the
// resources of a sandbox in the same order: processes, cgroup, ids, image.
package sandboxes
