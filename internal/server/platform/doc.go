// Package platform puts the parts together as the operator's settings say: the
// drivers, what they are made from, and one engine over them. The command line
// and the Go package sandbox share it, so that the same settings mean the same
// boundary whoever reads them.
//
// It promises that nothing runs behind another boundary than the settings name.
// A driver that is asked for by name and does not work here is an error, and
// never a reason to take another; only "auto" chooses, and only among drivers
// with a boundary that need no set-up.
package platform
