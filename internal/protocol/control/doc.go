// Package control serves the daemon's own HTTP API. It creates, lists and removes long-lived
// sandboxes, and gives access to their contents. Its clients are the command line, and control
// planes that create sandboxes for others.
//
//	POST   /sandboxes                    create one (wire.Create): 201 and wire.Sandbox
//	GET    /sandboxes                    all live and paused ones, or a search (wire.List)
//	GET    /sandboxes/{id}               one (wire.Sandbox)
//	DELETE /sandboxes/{id}               remove one: 204 when nothing of it is left
//	GET    /sandboxes/{id}/metrics       what one uses now (wire.Metrics)
//	POST   /sandboxes/{id}/renew         count as use, change the idle timeout (wire.Renew)
//	POST   /sandboxes/{id}/pause         save one on disk and stop it (wire.Sandbox)
//	POST   /sandboxes/{id}/resume        continue a paused one (wire.Sandbox)
//	POST   /sandboxes/{id}/fork          copy a running one (wire.Fork): 201 and wire.List
//	GET    /sandboxes/{id}/dir?path=     a page of a directory (wire.Dir); after= for the next
//	GET    /sandboxes/{id}/exec          Upgrade: sandbar-exec; one command, in frames (package wire)
//	GET    /sandboxes/{id}/watch?path=   changes of files (wire.FileEvent), one a line
//	POST   /sandboxes/{id}/previews      a URL of a port for browsers (wire.Preview)
//	GET    /sandboxes/{id}/previews      all (wire.Previews)
//	DELETE /sandboxes/{id}/previews/{port}  remove one: 204
//	POST   /sandboxes/{id}/contexts      start an interpreter (wire.CreateContext, wire.Context)
//	GET    /sandboxes/{id}/contexts      all (wire.Contexts)
//	DELETE /sandboxes/{id}/contexts/{c}  end one: 204
//	POST   …/contexts/{c}/run            run a cell (wire.Cell): a stream of wire.Event, one a line
//	POST   …/contexts/{c}/interrupt      interrupt the running cell (wire.Context)
//	POST   …/contexts/{c}/restart        start the interpreter again (wire.Context)
//	GET    /sandboxes/{id}/ports/{port}  Upgrade: tcp; a connection to a port inside
//	ANY    /sandboxes/{id}/executor/…    the sandbox's executor
//	ANY    /koyeb-sandbox/…              the same, of the sandbox that X-Routing-Key names
//	ANY    /r/{id}/…                     HTTP to the port that the executor has bound
//	GET    /v1/events                    what happens to sandboxes (wire.Notification), as SSE
//
// "/v1" may precede "/sandboxes". GET /openapi.json describes these requests (openapi.json).
//
// {id} is a sandbox's id, as "sb_…" or as a UUID of the same bits. With the daemon's token it can
// also be the sandbox's name, if no other sandbox has it.
//
// # Authorization
//
// The daemon's token allows everything; the listener checks it. A sandbox may have a secret of its
// own, set at its creation. The secret allows only the paths into that sandbox: exec, contexts,
// ports, executor, /koyeb-sandbox/ and /r/. A request with neither gets the same 401 whether or not
// the sandbox exists; for that the package implements httpd.Admitter. Secrets are stored as hashes
// and compared in constant time. Authorization headers never reach a program in a sandbox.
//
// # Invariants
//
//   - Bodies are strict: an unknown or duplicate field, a wrong type or a number out of range is
//     refused with the allowed values, and has no effect.
//   - Every error is {"error":{"code","message","fix"}} with the members of RFC 9457 and a status
//     of the table in errors.go. Secrets and environments are in no error and in no log.
//   - Commands deliver the exact bytes of both outputs, with back-pressure to the program. If the
//     client leaves, its command is cancelled.
//   - For a browser, a page of a program below /r/ does not have the daemon's origin: a
//     Content-Security-Policy confines it and every other response of the program. Informational
//     responses and trailers are dropped. No redirection leads a client to another part of the
//     daemon.
//   - The number of open connections and commands is bounded per sandbox (Options.MaxConnections).
//
// A sandbox with a shorter idle_timeout than the operator's is removed after that time without
// requests and without work. Following a log counts as a request.
package control
