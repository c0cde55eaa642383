// Package daemonid identifies running daemons. A daemon writes its id on every resource that could
// outlive it, so that other daemons can tell whether the owner still runs.
//
// An id is the daemon's pid, the start time of that process, and the number of its PID namespace.
// No two processes of one boot have the same. An id has a meaning only in the boot and PID
// namespace in which it was created, which Scope identifies. Elsewhere, for instance in a container
// that shares the host's cgroups, the owner counts as alive. If ids are not available (not on
// Linux, or /proc belongs to another PID namespace), the id and the scope are "".
package daemonid
