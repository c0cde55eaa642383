// Package transfer copies files and directories between this host and a sandbox of a daemon.
//
// Invariants: a local file is replaced atomically, after all data has arrived; symbolic links are
// neither followed nor written through; no name from a sandbox leads out of the destination
// directory.
package transfer
