// Package daemonid names running daemons, so that whatever a daemon makes that
// could outlive it carries the name of its owner, and others can tell whether
// that one still lives.
//
// A name is a pid, the moment that process started, and the PID namespace that
// the number belongs to, which no other process of this boot shares. It says
// something only where it was given: in one boot and one PID namespace, which Here
// names; elsewhere, as in a container that shares the host's control groups, its
// owner is taken for alive. Where processes cannot be told apart so (outside of
// Linux, or where /proc is another namespace's) both are "".
package daemonid
