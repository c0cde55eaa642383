// Package fathom serves the Fathom Sandbox Protocol, version 1.0 (docs/protocols.md, Fathom): JSON
// messages over a WebSocket, with many concurrent executions per connection and streamed output.
//
// [New] makes a [Server] over an engine, an http.Handler for GET /ws. The listener checks tokens,
// Host and Origin before a request arrives here.
//
// # Invariants
//
//   - Every sent message is one text frame with one well-formed JSON object in valid UTF-8, with a
//     type and a status of the specification. A known client fails every execution of a connection
//     at the first frame that it cannot decode, and another crashes at an unknown status.
//   - An accepted execute is answered by, in this order: ack, status running, output, a terminal
//     status, result. If the platform fails, an error replaces everything not yet sent. There is
//     exactly one last message, a result or an error, and no message with the id after it. A
//     refused execute is answered by one error and no ack.
//   - A message that cannot be obeyed is answered by an error with the reason and the allowed
//     values. It affects nothing else, and the connection stays open. Refusals never contain code,
//     environment values or input.
//   - Output is sent at once, except that the output of a program that prints without pause is
//     gathered for half a millisecond. A client that reads slowly blocks its own programs and no
//     others: at most 4 messages of output and 64 answers are queued per connection. The executions
//     of a connection take turns, one message each.
//   - At shutdown, executions may finish, their last messages are sent, and the connection is
//     closed with status 1001.
//
// # Decisions where the specification is silent
//
// Endings:
//
//   - Output limit reached: the program is killed; status failed, then error OUTPUT_LIMIT, then
//     result with exit_code null. All whole characters up to the limit have been sent, and never
//     more bytes than the limit.
//   - Timeout and out of memory: status timeout or oom, then result with exit_code null. The error
//     codes TIMEOUT and OOM mean that no program ran yet: an execution that waited in the queue for
//     too long ends with error TIMEOUT. OOM is mapped likewise, but no present driver can exhaust a
//     sandbox's memory before the program runs.
//   - Exit code 0: completed. Any other: failed, and result with that code. Killed by a signal:
//     failed, exit_code null.
//   - Cancelled while queued: status cancelled, then result with exit_code null and duration_ms 0;
//     no status running was sent.
//   - A sandbox that dies under its program: error INTERNAL_ERROR, no status and no result. How the
//     program ended is unknown.
//   - An execution that the server cancels at its shutdown is not "cancelled by client": it ends
//     with error NETWORK_ERROR, which clients may retry.
//   - A backend that cannot be reached: NETWORK_ERROR.
//
// Requests:
//
//   - The specification requires ts; messages without it are accepted, and so is any string. A ts
//     that is not a string is refused.
//   - id is any string of 1 to 256 bytes, and is returned unchanged. A ping has none: its id is
//     ignored. An error has the id of the message if that was usable; otherwise the field is
//     omitted.
//   - A duplicate id on a connection while the first execution runs or waits: INVALID_REQUEST, and
//     the first is not affected. After its last message the id can be used again. Ids of different
//     connections are independent.
//   - cancel of an id that is not running or queued, perhaps because it has just ended:
//     UNKNOWN_EXECUTION. A second cancel is ignored.
//   - Unknown fields are ignored; the last of several fields with one name counts. Names are
//     compared exactly. null counts as absent.
//   - Numbers may have any notation of JSON: 30000, 30000.0, 3e4.
//   - Refused as INVALID_REQUEST, without an id because none can be read: anything but one JSON
//     object, a byte order mark, bytes that are not UTF-8, binary frames, nesting beyond 32 levels,
//     more than 65536 members, and escapes of unpaired surrogates, which UTF-8 cannot represent.
//   - An empty program is valid. stdin is text; version 1 has no binary input.
//   - Code beyond 1 MiB, an environment beyond 64 KiB (names and values together), input beyond 1
//     MiB, each configurable: INVALID_REQUEST with the limit. A frame too large for any valid
//     request, even with every character escaped, is not read to its end: the connection is closed
//     with status 1009.
//   - limits must be within the operator's ranges; the refusal has the range in the protocol's
//     units. MB is 1048576 bytes throughout. cpu_shares and max_output_bytes have the operator's
//     defaults, by default those of the specification (512 and 1 MiB). A request for the default
//     weight counts as no request, so that clients that always send it are served on hosts without
//     weights. A limit that this host cannot enforce is INVALID_REQUEST.
//   - language is a name or an alias of the catalogue. An unknown one is refused with
//     LANGUAGE_NOT_SUPPORTED and the available names. So is, without an ack, a language whose
//     interpreter the sandbox lacks, if the engine looks for interpreters
//     (engine.Config.CheckLanguages, as the daemon does). An interpreter that is found missing only
//     at the start of the program, because it was removed since or could not be looked for, is the
//     same error after ack.
//   - Programs have no network unless the operator enables it for all of them (Options.Network): no
//     field requests it.
//   - An unsupported version: at the upgrade, 400 with the served version in the body and in
//     X-Protocol-Version; in a message, INVALID_REQUEST. No header is version 1. Every response to
//     an upgrade has the header.
//   - Too many executions on one connection (256, queued ones included): SANDBOX_OVERLOADED, as for
//     a full queue of the engine.
//
// Results:
//
//   - duration_ms and cpu_time_ms are rounded down to whole milliseconds, peak_memory_mb is rounded
//     up to whole MB, and 0 is unknown or nothing. resource_usage is always present.
//   - data is never empty. A character that the program writes in pieces is sent when it is
//     complete. Bytes that are not UTF-8 become U+FFFD, one for each maximal subpart, as in
//     browsers and Python. An incomplete character at the end of a stream is one U+FFFD; one that
//     the output limit has cut is omitted. The limit applies to the program's bytes and to the
//     bytes of data in UTF-8, which are more if U+FFFD replaces a byte.
//   - One message has at most 128 KiB of the program's output, so its length with escapes is below
//     1 MiB, the default maximum of known clients.
//
// Connections:
//
//   - The executions of a lost connection are cancelled after a grace period (5 s). Meanwhile their
//     output is discarded, up to the output limit.
//   - The connection ends if the write of a message takes longer than 30 s, because the client does
//     not read; if a message takes longer than 60 s to arrive; or if a peer answers no WebSocket
//     ping (every 30 s). While output is blocked, the client's pings are not answered: the answers
//     would wait behind the output.
//   - Compression is not offered.
package fathom
