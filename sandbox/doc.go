// Package sandbox runs a piece of code and says what came of it, for Go programs
// that want no more than that. Where the code runs is the operator's choice and
// not the program's: one environment variable decides
// (docs/protocols.md, Execution).
//
//	func main() {
//		self := sandbox.Self() // first of all: see below
//		box, err := sandbox.Open(sandbox.Options{Agent: self, Environ: os.Environ()})
//		if err != nil { … }
//		defer box.Close()
//		r, err := box.Execute(ctx, sandbox.Request{Code: "print(2 + 2)"})
//		fmt.Print(r.Stdout)
//	}
//
// # Settings
//
// Options.Environ gives the settings of the command line: all SANDBAR_ variables
// (docs/configuration.md) and those of the execution abstraction:
//
//	SANDBOX_TYPE                     auto (the default) or a driver's name: native, local, docker, gvisor, oci, wasm
//	SANDBOX_TIMEOUT_SEC              seconds for every request, whatever it asks for; unset, 30 for one that asks for none
//	SANDBOX_MAX_OUTPUT_KB            KiB kept of each of stdout and stderr; 10; 0 keeps all
//	SANDBOX_SUPPORTED_LANGUAGES      the languages that may be asked for; all
//	SANDBOX_BLOCK_DANGEROUS_IMPORTS  true refuses Python that imports os, subprocess, shutil, socket or pathlib; false
//	SANDBOX_STORE_CODE               always, on_error or never; keeps code and result in artifacts/executions; never
//	DOCKER_IMAGE, DOCKER_NETWORK_ENABLED, DOCKER_CPU_LIMIT, DOCKER_MEMORY_LIMIT, DOCKER_PULL, for the driver docker
//
// "auto" is the strongest boundary that needs no set-up, and never none at all. A
// driver that is named and does not work is an error, and never a reason to run
// the code elsewhere.
//
// # Two kinds of failure
//
// What a program does is a Result, however badly it ends: an exit code, a signal,
// a timeout, too much memory. That there could be no program is an error, a
// *sandbar.Error with one of its codes.
//
// # The agent
//
// The native driver puts a small program into each sandbox as its first process.
// A program that embeds this package can be that program itself: it calls Self
// before anything else, which does not return in a sandbox. One that cannot,
// because it is linked with C or starts in another way, gives the bytes of
// cmd/sandbar-agent to AgentProgram.
package sandbox
