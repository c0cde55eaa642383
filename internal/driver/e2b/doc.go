// Package e2b makes each sandbox a sandbox of an E2B service: E2B's cloud, or a host of one's own
// that speaks its protocol. It uses only what any such service has: the control plane, and envd,
// which runs processes and stores files in a sandbox.
//
// Package agent has the same tasks as in every sandbox: it starts programs, accesses files and
// dials ports. The driver uploads its executable and starts it by envd; the agent's connection is
// the standard input and output of that process (relay.go). So programs have the same exit codes,
// signals, streams, files and process trees as with every driver, and envd's own interface to
// processes, which knows two signals and no process tree, only carries the connection.
//
// The boundary is that of the service, another machine. The agent runs as the sandbox's root if
// there is one, and programs as its default user, under the system-call filter of package policy
// and in a Landlock domain of their own, so that they cannot reach the agent. The driver enforces
// the number of processes and of open files. The template decides on memory, processors and disk,
// so a Spec with one of these limits is refused.
//
// A request is repeated only if nothing has run: after a refused connection, after 429 at the time
// that the service names, or if it changes nothing. If the agent's connection ends, the sandbox is
// dead. Every sandbox has the daemon's identity as metadata, by which leftovers are found, and a
// short time limit, which the driver extends while it lives: the service removes the sandboxes of a
// daemon that is gone.
package e2b
