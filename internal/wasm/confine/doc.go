// Package confine takes from the processes of the wasm driver the rights that
// they do not need: on Linux by Landlock, a system-call filter and rlimits, all
// of package policy. It is a second layer. The first, that WebAssembly reaches
// only what it is given, holds everywhere and without it, so what a kernel does
// not have is left out. Unpacker does the same for the process that unpacks
// images, whose first layer is that Go's parsers are safe in memory.
//
// Network confines the process that carries sandboxes' packets (package netstack)
// by the same means, in which no other layer is between it and the host.
//
// It needs a program without cgo, as sandbar is: where there is cgo, as under
// the race detector, not all threads can be reached and nothing is taken.
package confine
