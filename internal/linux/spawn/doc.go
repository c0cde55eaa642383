// Package spawn starts agents, each as the first process of new namespaces, and finds what killed
// daemons left behind. The drivers native and oci use it.
//
// Invariants:
//
//   - An agent ends with the daemon that started it, however the daemon ends.
//   - All operations on an agent use its pidfd, so they never affect another process that reused
//     its pid.
//   - If the host has id ranges, no two sandboxes of a daemon have the same range.
//   - The cost of starting an agent does not depend on the size of the daemon.
package spawn
