// Package sandbox runs a piece of code in a new sandbox and returns its result. It is
// for Go programs that need only that. The operator and not the program chooses the
// backend, with one environment variable (docs/protocols.md, Execution).
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
// Options.Environ holds the same settings as for the command line: all SANDBAR_
// variables (docs/configuration.md) and those of the execution abstraction:
//
//	SANDBOX_TYPE                     auto (default) or native, local, docker, e2b, gvisor, oci, wasm
//	SANDBOX_TIMEOUT_SEC              seconds, overrides the request; unset: 30 if that has no limit
//	SANDBOX_MAX_OUTPUT_KB            KiB kept of each of stdout and stderr; 10; 0 keeps all
//	SANDBOX_SUPPORTED_LANGUAGES      the allowed languages; all
//	SANDBOX_BLOCK_DANGEROUS_IMPORTS  true refuses Python that imports os, subprocess, shutil,
//	                                 socket or pathlib; false
//	SANDBOX_STORE_CODE               always, on_error or never: keeps code and result in
//	                                 artifacts/executions; never
//	DOCKER_IMAGE, DOCKER_NETWORK_ENABLED, DOCKER_CPU_LIMIT, DOCKER_MEMORY_LIMIT, DOCKER_PULL
//	                                 for the driver docker
//	E2B_API_KEY, E2B_DOMAIN, E2B_API_URL, E2B_SANDBOX_URL
//	                                 for the driver e2b
//
// "auto" selects the strongest boundary that needs no set-up, and fails if there is
// none. If the variable names a driver that does not work, Open returns an error.
// Sandbar never falls back to another driver.
//
// # Two kinds of failure
//
// A program's failure is a Result: an exit code, a signal, a timeout, too much memory.
// If the program could not run, the error is a *sandbar.Error with one of its codes.
//
// # The agent
//
// The native driver starts a small program, the agent, as the first process of each sandbox. A
// program that embeds this package can be its own agent: it calls Self first in main, and in a
// sandbox Self does not return. A program that cannot do that, for example because it is linked
// with C, passes the bytes of cmd/sandbar-agent to AgentProgram.
package sandbox
