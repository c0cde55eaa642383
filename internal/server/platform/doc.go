// Package platform builds the parts of a daemon from the operator's settings: the drivers, their
// hosts, and one engine over them. The command line and the Go package sandbox share it, so that
// the same settings always mean the same boundary.
//
// Nothing runs behind another boundary than the settings name. If a driver is named and does not
// work, that is an error; Sandbar never falls back to another driver. Only "auto" chooses, and only
// among drivers with a boundary that need no set-up.
package platform
