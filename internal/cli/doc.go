// Package cli has the shared code of the subcommands of cmd/sandbar: exit codes, the errors that
// carry them, and text that is safe on a terminal. The packages below it do the work of
// subcommands.
package cli
