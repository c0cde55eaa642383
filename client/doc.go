// Package client is a client of the daemon: of its own API
// (internal/protocol/control) and of the executors of its sandboxes.
//
// Errors are *sandbar.Error with the daemon's message or, if no daemon answers, with the next step.
// An answer uses bounded memory. The token is sent only to the daemon: the client uses no proxy and
// follows no redirections. Output and files are transferred byte for byte.
package client
