// Package stdio serves the WASM sandbox JSON protocol: a sandbox as a child process that reads
// requests from its standard input, one JSON object per line, and writes one response per line.
//
// Invariants:
//
//   - Every line that is not blank gets exactly one response line, whatever its content, and later
//     requests still work. Requests are answered in order.
//   - Lines and files are bounded. A longer line is read to its end and answered; the server never
//     buffers more of it than the bound.
//   - At the end of the input, the server finishes and answers the current request, and exits.
//   - Nothing but responses is written to the output.
//
// Decisions where the protocol's text is silent:
//
//   - A malformed line, and one without an id or a known type, is answered with type "error", and
//     with its id if it has one, otherwise null. All other errors are answered in the form of the
//     request's type.
//   - A command that exceeds its time has exit_code null, timed_out true, an error, and the output
//     so far. One that is killed for its memory or its output has exit_code null and an error. One
//     that a signal ends has the exit code of shells, 128 plus the signal's number.
//   - Output that is not UTF-8 has U+FFFD in its place. Reading a file that is not UTF-8 as text is
//     an error that says so.
//   - Commands start in the sandbox's home directory, and relative paths of files start there.
//     Missing parents of a written file are created.
//   - Unknown fields are ignored; the last of several fields with one name counts. Field names are
//     compared exactly.
//   - uptime_ms counts from the start of the process, also after a reset.
//   - If the sandbox dies, the current request is answered with an error, and the next one gets a
//     new sandbox, without the files of the old one.
package stdio
