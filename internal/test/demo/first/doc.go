// Command first runs one program in a sandbox of the native driver and prints its output. It
// links the engine and that driver, but not the daemon's libraries, which take most of a first
// build: "make demo" runs it before it builds the daemon. If the driver does not work, it says so
// and succeeds; the demonstration of the daemon decides whether that is an error.
package main
