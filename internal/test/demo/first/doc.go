// Command first runs one program in a sandbox of the native driver and shows its
// output. It has the engine and that driver, and none of the libraries of the
// daemon, which take most of a first build: "make demo" shows it while the daemon is
// still to be built. Where the driver does not work it says so and succeeds, since
// the demonstration of the daemon decides what that means.
package main
