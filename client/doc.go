// Package client speaks to a daemon: to its own API (internal/protocol/control) and
// to the executors of its sandboxes.
//
// It promises that errors are *sandbar.Error with what the daemon said, or with
// what to do where none answers; that nothing a daemon answers costs unbounded
// memory; that the token goes to the daemon and nowhere else, through no proxy
// and after no redirection; and that output and files arrive to the byte.
package client
