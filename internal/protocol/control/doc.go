// Package control is the daemon's own HTTP API: it makes, lists and removes
// long-lived sandboxes, and leads to what is in them. The command line is its
// client, and so is a control plane that has sandboxes made for others.
//
//	POST   /sandboxes                    make one (wire.Create): 201 and wire.Sandbox
//	GET    /sandboxes                    all that live (wire.List)
//	GET    /sandboxes/{id}               one (wire.Sandbox)
//	DELETE /sandboxes/{id}               end one: 204 when nothing is left of it
//	GET    /sandboxes/{id}/dir?path=     a page of a directory (wire.Dir); after= for the next
//	GET    /sandboxes/{id}/exec          Upgrade: sandbar-exec; one command, in frames (package wire)
//	GET    /sandboxes/{id}/ports/{port}  Upgrade: tcp; a connection to a port inside
//	ANY    /sandboxes/{id}/executor/…    the sandbox's executor
//	ANY    /koyeb-sandbox/…              the same, of the sandbox that X-Routing-Key names
//	ANY    /r/{id}/…                     HTTP to the port that the executor has bound
//
// {id} is a sandbox's id, as "sb_…" or as the UUID of the same bits, or, for who
// bears the daemon's token, its name, if no other has it.
//
// # Who may do what
//
// The daemon's token opens everything, and the listener checks it. A sandbox may
// have a secret of its own, given when it is made. It opens what leads into that
// sandbox and nothing else: exec, ports, executor, /koyeb-sandbox/ and /r/. Who
// bears neither gets the same 401 whether there is such a sandbox or not; the
// package takes part in that as an httpd.Admitter. Secrets are kept as hashes
// and compared in constant time, and an Authorization header never reaches a
// program in a sandbox.
//
// # What it promises
//
//   - Bodies are strict: an unknown field, a field given twice, a wrong type or
//     a number out of range is refused, says what is allowed, and has no effect.
//   - Every error is {"error":{"code","message","fix"}} with a status from the
//     table in errors.go. Secrets and environments are in none, nor in a log.
//   - Commands are exact: the bytes of both outputs as they were written, with
//     back-pressure to the program; a client that leaves takes its command along.
//   - A page that a program in a sandbox serves below /r/ is not of the daemon's
//     origin for a browser: it is confined with a Content-Security-Policy, and so
//     is every other answer of the program. Informational answers and trailers are
//     dropped. No redirection leads a client to another part of the daemon.
//   - What clients can hold open is bounded per sandbox (Options.MaxConnections).
//
// A sandbox with a shorter idle_timeout than the operator's is ended when no
// request to it has been under way and no work in it for so long. To follow a
// log is a request.
package control
