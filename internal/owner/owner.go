// Package owner names running daemons, so that whatever a daemon makes that
// could outlive it carries the name of its owner, and others can tell whether
// that one still lives.
//
// A name is a pid and the moment that process started, which no other process
// of this boot shares. It says something only where it was given: in one boot
// and one PID namespace, which Here names. Where processes cannot be told apart
// so (outside of Linux) both are "".
package owner
