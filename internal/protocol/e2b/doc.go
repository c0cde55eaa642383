// Package e2b serves the E2B protocol, so that E2B's unmodified SDKs work with the sandboxes of an
// engine (docs/e2b.md).
//
// A [Server] has three parts. The control plane creates, lists and ends sandboxes, and makes
// snapshots and templates; its requests have an API key, which the listener checks. envd, at port
// 49983 of a sandbox, has files, processes and watches, as REST and as Connect calls in JSON. The
// code interpreter, at port 49999, runs cells in contexts. All other ports are the programs' own.
//
// A request names a sandbox and a port by its host name, PORT-ID.DOMAIN, or by two headers.
// Requests to /files can have neither; the sandbox is then the one of the access token or of the
// signature.
//
// A snapshot or a template is a paused sandbox of the engine whose note describes it. A template is
// built in a sandbox, by the steps of its client, and then paused.
//
// # Invariants
//
//   - Paths, statuses, field names and the form of errors are those of the protocol. Every error
//     has the number of its status, or the name of its Connect code, in its body.
//   - Every sandbox has an access token. Without it nobody reads or writes files or starts
//     programs. It is compared in constant time, and never logged.
//   - A program outlives the stream that started it. Its output goes to all streams that follow it,
//     complete and in order, or nowhere. A client that does not read blocks the programs that it
//     follows, uses bounded memory, and is cut off after Options.StallTimeout.
//   - A stream ends with exactly one end envelope, unless its client has gone.
//   - Everything that a client sends has a limit.
//   - What the server cannot do is refused with an error, and never ignored.
package e2b
