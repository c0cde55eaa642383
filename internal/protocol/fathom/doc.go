// Package fathom serves the Fathom Sandbox Protocol, version 1.0
// (docs/protocols.md, Fathom): JSON messages over a WebSocket, many executions
// at once on one connection, output streamed as it is written.
//
// [New] makes a [Server] over an engine; the server is an http.Handler for
// GET /ws. Tokens, Host and Origin are the listener's business and have been
// checked when a request arrives here.
//
// # What it promises
//
//   - Every message that leaves is one text frame with one well-formed JSON
//     object in valid UTF-8, with a type and a status that the text names. A
//     known client fails every execution of a connection at the first frame it
//     cannot read, and another crashes at a status it does not know.
//   - An accepted execute is answered by, in this order: ack, status running,
//     output, a terminal status, result. Or, where the platform fails, by an
//     error in place of all that has not been sent yet. There is exactly one
//     last message, a result or an error, and nothing for the id after it. A
//     refused execute is answered by one error and no ack.
//   - A message that cannot be obeyed is answered by an error that says what is
//     wrong and what is allowed; nothing else is disturbed and the connection
//     stays open. Refusals never repeat code, environment values or input.
//   - Output is sent at once. That of a program that prints without a pause is
//     gathered for half a millisecond. A client that reads slowly holds its own
//     programs back, and nobody else's: what waits for it is bounded, at most 4
//     messages of output and 64 answers to a connection.
//     Executions of one connection take turns, a message each.
//   - When the server shuts down, executions are let finish, their last
//     messages are sent, and the connection is closed with status 1001.
//
// # Where the text is silent
//
// These are our decisions.
//
// Endings:
//
//   - Output limit reached: the program is killed; status failed, then error
//     OUTPUT_LIMIT, then result with exit_code null. All whole characters up to
//     the limit have been sent, and never more bytes than the limit.
//   - Timeout and out of memory: status timeout or oom, then result with
//     exit_code null. The error codes TIMEOUT and OOM are for when no program
//     was running yet: an execution that waited in the queue for too long ends
//     with error TIMEOUT. OOM is mapped likewise, but no driver of today can
//     run out of a sandbox's memory before the program runs.
//   - Exit code 0: completed. Any other: failed, and result with that code.
//     Killed by a signal of its own: failed, exit_code null.
//   - Cancelled while queued: status cancelled, then result with exit_code
//     null and duration_ms 0; no status running was sent.
//   - A sandbox that dies under its program: error INTERNAL_ERROR, no status
//     and no result. How the program ended is not known and not invented.
//   - An execution that the server itself cancels, because it is shutting
//     down, is not "cancelled by client": it ends with error NETWORK_ERROR,
//     which may be retried.
//   - A backend that cannot be reached: NETWORK_ERROR.
//
// Requests:
//
//   - ts is required by the text; clients that leave it out are served, and
//     any string will do. A ts that is not a string is refused.
//   - id is any string of 1 to 256 bytes, and comes back as it was. A ping has
//     none: an id in it is ignored. An error carries the id if the message had
//     one that could be used; otherwise the field is left out.
//   - The same id twice on a connection while the first execution is under
//     way: INVALID_REQUEST, and the first is untouched. Once its last message
//     has been sent the id may be used again. Connections know nothing of each
//     other's ids.
//   - cancel of an id that is not under way, perhaps because it has just
//     ended: UNKNOWN_EXECUTION. A second cancel is ignored.
//   - Unknown fields are ignored; of a field given twice the last one counts.
//     Names are compared exactly. null is the same as left out.
//   - Numbers may be written in any way JSON has: 30000, 30000.0, 3e4.
//   - Refused as INVALID_REQUEST, with no id since none can be read: what is
//     not one JSON object, a byte order mark, bytes that are not UTF-8, binary
//     frames, nesting beyond 32 levels, more than 65536 members, and escapes of
//     unpaired surrogates, which no UTF-8 can hold.
//   - An empty program is a program. stdin is text; version 1 has no binary.
//   - Code beyond 1 MiB, an environment beyond 64 KiB (names and values
//     together), input beyond 1 MiB, each configurable: INVALID_REQUEST naming
//     the limit. A frame that could not hold a valid request even if every
//     character were escaped is not read to its end: the connection is closed
//     with status 1009.
//   - limits must be within the operator's ranges; the refusal names the range
//     in the protocol's units. MB is 1048576 bytes throughout. cpu_shares and
//     max_output_bytes have the operator's defaults, which are the text's (512
//     and 1 MiB) unless he changed them. Naming the default weight is the same
//     as naming none, so that clients which always name it are served on hosts
//     that have no weights. A limit that this host cannot enforce is
//     INVALID_REQUEST.
//   - language is a name or an alias of the catalogue. An unknown one is
//     refused with LANGUAGE_NOT_SUPPORTED and the names there are, and so is,
//     without an ack, one whose interpreter the sandbox does not have, where the
//     engine looks for interpreters (engine.Config.CheckLanguages; the daemon
//     does). What is found missing only when the program is started, because it
//     was removed since or could not be looked for, is the same error after ack.
//   - Programs have no network unless the operator enables it for all of them
//     (Options.Network): no field asks for it.
//   - An unsupported version: at the upgrade, 400 with the version served in
//     the body and in X-Protocol-Version; in a message, INVALID_REQUEST. No
//     header is version 1. Every answer to an upgrade has the header.
//   - Too many executions under way on one connection (256): SANDBOX_OVERLOADED,
//     as when the engine's queue is full.
//
// Results:
//
//   - duration_ms and cpu_time_ms are cut to whole milliseconds,
//     peak_memory_mb is rounded up to whole MB, and 0 is unknown or nothing.
//     resource_usage is always there.
//   - data is never empty. A character that the program writes in pieces is
//     sent whole, once it is; bytes that are not UTF-8 become U+FFFD, one for
//     each maximal subpart, which is what browsers and Python do. Half a
//     character at the end of a stream is one U+FFFD; one that the output limit
//     has cut is left out. The limit holds for the program's bytes and for those
//     of data in UTF-8, which are more where U+FFFD stands for a byte.
//   - One message holds at most 128 KiB of the program's output, and so less than
//     1 MiB whatever is escaped in it, which known clients accept by default.
//
// Connections:
//
//   - A connection that ends takes its executions with it after a grace (5 s);
//     output in the meantime is discarded, up to the output limit.
//   - A message that takes longer than 30 s to be written, because the client
//     reads nothing, ends the connection; so does a message that takes longer
//     than 60 s to arrive, and a peer that answers no WebSocket ping (every
//     30 s). While output is stuck, pings of the client are not answered: they
//     could only wait behind it.
//   - Compression is not offered.
package fathom
