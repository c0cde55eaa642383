// Package transfer copies files and directories between this host and a sandbox of a daemon.
//
// It promises that a local file appears in one step, when all of it has arrived; that links are neither
// followed nor written through; and that no name from a sandbox leads out of the directory that it is
// copied to.
package transfer
