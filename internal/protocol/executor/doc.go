// Package executor serves the sandbox executor protocol (docs/protocols.md, Executor): commands,
// files, background processes and ports of one long-lived sandbox, over HTTP and Server-Sent
// Events.
//
// [New] makes a [Server], an http.Handler for one sandbox of an engine. [Server.ServeProxy] is the
// port proxy. Options.Authorize authorizes requests; [Static] and [Pool] are the two ways of the
// specification. The listener checks Host and Origin.
//
// # Invariants
//
//   - Statuses, field names, texts and the form of events are those of the specification, and where
//     it is silent those of its reference implementation: known clients distinguish errors by words
//     in them. content and entries are always present.
//   - Both outputs of a program are read at the same time. Every line arrives once, in the order of
//     its stream, whatever its length, its speed and the time of the program's end. Bytes that are
//     not UTF-8 become U+FFFD. Omitted output is reported: truncated in a response, an event gap in
//     a log.
//   - A stream ends with exactly one complete event, unless its client has gone. While nothing
//     happens it sends comments.
//   - A client that does not read blocks its own program and no other. It uses bounded memory and
//     is disconnected after Options.Stall. A client that follows a log blocks no program.
//   - If a client disconnects, the command of its request is ended. The end of a program for that
//     reason, by timeout or by kill_process ends all its descendants. If a program exits by itself,
//     its background children go on.
//   - A file is replaced atomically or not at all. Files of any size are read and written in
//     constant memory. Every operation is performed inside the sandbox, with the rights of its
//     user.
//   - A malformed request has no effect.
//   - Commands, environments, output, bodies and secrets are never logged.
//
// # Deviations from the specification
//
// In mode pool the specification lets the first client claim the sandbox. Here a claim must come
// over loopback or carry the operator's token, and its secret must have at least MinSecret bytes.
//
// # Decisions where the specification is silent
//
// Requests:
//
//   - Paths are also served below /koyeb-sandbox, a prefix that some clients add. An unknown path
//     is 404 without authorization, so it cannot become a pool's first claim. A method that an
//     endpoint does not have is 405, also for the seed's example that posts to
//     /process_logs_streaming.
//   - A body is exactly one JSON object in UTF-8, whatever its Content-Type. Unknown fields are
//     ignored, null counts as absent, and names are compared exactly. A duplicate known field, a
//     byte order mark, an unpaired surrogate, nesting beyond 64 levels and more than 65536 members
//     are 400.
//   - A body of which more than Options.MaxJSON must be kept in memory is 413, and so is more
//     content than Options.MaxContent. No byte for Options.BodyTimeout is 408.
//   - 503, which the protocol's client retries, is sent only if nothing was started: the engine is
//     at its limits, the sandbox has too many open files, or the server is closing.
//
// Commands:
//
//   - timeout, an extension, is a number of seconds for /run and /run_streaming. Without it /run
//     has the sandbox's default and /run_streaming has none. A command that exceeds it has code -1
//     and the text "timed out after 5s": in error of the response of /run, which keeps the output
//     so far, and in message of complete.
//   - code is -1 for every program without an exit code of its own: ended by a signal, for memory,
//     by timeout or for its output. error is present exactly if code is not 0.
//   - /run keeps output up to the sandbox's limit, at most Options.MaxOutput. Beyond that the
//     program is ended, and the response has truncated and an error with the number of bytes kept.
//     A stream has no limit.
//   - encoding "base64", an extension, makes /run return the outputs' bytes in base64.
//   - If the sandbox is lost or stopped during a command, /run is 500; a stream ends with complete,
//     code -1 and a message.
//   - A working directory is resolved as by the kernel: relative to sandbar.DefaultDir, through
//     links.
//
// Streams and logs:
//
//   - A line ends with a line feed; carriage returns before it are not part of it. A line over 4
//     MiB, in a log 1 MiB, arrives in several events, of which all but the last have
//     "partial":true; their concatenation is the line. An incomplete line waits for its end and
//     delays no other output.
//   - The two outputs of one process arrive in the order in which the server read them. Output that
//     a program writes to both at the same time has no order.
//   - An event of a log has an id, "3-1" after three lines of stdout and one of stderr.
//     Last-Event-ID continues after it, without loss or duplicates. An id that the log cannot have
//     is 400.
//   - Dropped lines are reported by an event gap with the data {"lost":90,"of":"stdout"}, once to
//     each reader that missed them, also to a new reader. It has no member stream, by which clients
//     recognise a line.
//   - A timestamp has nine decimals and is UTC. Lines that were read from the program together have
//     the same one.
//
// Processes:
//
//   - killed is a process that a signal ended, also for memory; its exit_code is -1. kill_process
//     responds when all descendants of the process have ended; if the process ended by itself
//     before, it was not running. started_at, completed_at and exit_code are not in the
//     specification; known clients accept these and would fail at any other field.
//   - Beyond Options.KeepFinished the oldest finished processes are forgotten. Background processes
//     outlive the server and end with their sandbox.
//
// Files:
//
//   - write_file and PUT follow symbolic links and replace the file there atomically, with its
//     previous mode, or 0644. Other names of the same file (hard links) keep the old content. A
//     file without write permission is refused, even if its directory would allow the replacement.
//   - write_file streams its content into a file, at most Options.MaxContent bytes. Known clients
//     send path first. Content before path goes into a temporary file in the sandbox's home
//     directory, which is then moved to path.
//   - An error in the middle of read_file or list_dir, after part of the response was sent, is at
//     its end. list_dir lists at most 1048576 names.
//   - /files?path= is an extension. GET and HEAD support ranges and conditions. PUT makes a file
//     (201) or replaces one (204), and accepts mode (octal) and parents ("true"). 404, 403, 409 and
//     507 have the members error and code. The body of a failed PUT is still read, up to 1 GiB, for
//     clients that read no response before they have sent all.
//   - A file larger than the engine's MaxFile, holes included, is not read: 413 with the code
//     too_large, and an error in the response of /read_file.
//
// Ports:
//
//   - A port is written in digits, 1 to 65535. If no port is bound, a connection is closed after
//     100 ms, which health checks accept as success. If the bound port has no listener, it is
//     closed at once. A half-close is forwarded, and leaves the other direction open.
package executor
