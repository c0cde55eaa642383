// Package stdio is the WASM sandbox JSON protocol: a sandbox as a child process
// that reads requests from its standard input, one JSON object a line, and
// writes one response a line.
//
// What it promises:
//
//   - Every line that is not blank gets exactly one response line, whatever is
//     in it, and the next request works. Requests are answered in their order.
//   - Lines and files have a limit. A line beyond it is read to its end and
//     answered; no more of it than the limit is ever held.
//   - The end of the input ends it: what runs is brought to its end and
//     answered before.
//   - Nothing but responses is written to the output.
//
// Where the text of the protocol is silent:
//
//   - A line that cannot be understood, or that has no id or no known type, is
//     answered with type "error", and its id if it has one, else null. Anything
//     else is answered in the shape of its own type, with an error.
//   - A command that runs out of time has exit_code null, timed_out true, an
//     error, and the output up to then. One that is ended for its memory or its
//     output has exit_code null and an error. One that a signal ends has the
//     exit code that shells give it, 128 and the signal's number.
//   - Output that is not UTF-8 has U+FFFD in its place. A file that is not is
//     no text: reading it as such is an error that says so.
//   - Commands start in the sandbox's home directory, where relative paths of
//     files start too. Directories above a file that is written are made.
//   - Fields that are not known are ignored; of a field that is there twice the
//     last one counts. Names of fields are compared exactly.
//   - uptime_ms counts from the start of the process, also after a reset.
//   - If the sandbox dies, the request under way is answered with an error and
//     the next one finds a new sandbox, without the files of the old one.
package stdio
