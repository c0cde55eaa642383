// Package executor serves the sandbox executor protocol
// (docs/protocols.md, Executor): commands, files, background processes and
// ports of one long-lived sandbox, over HTTP and Server-Sent Events.
//
// [New] makes a [Server], an http.Handler for one sandbox of an engine;
// [Server.ServeProxy] is the port proxy beside it. Who may pass is asked of
// Options.Authorize, for which [Static] and [Pool] are the two ways of the text.
// Host and Origin are the listener's business.
//
// # What it promises
//
//   - Statuses, field names, texts and the form of events are the text's, and
//     where it is silent those of its reference implementation: known clients
//     tell errors apart by words in them. content and entries are always there.
//   - Both outputs of a program are read at once. Every line comes, once and in
//     the order of its stream, however long it is, however fast it came, and
//     however soon the program ended; bytes that are not UTF-8 become U+FFFD.
//     What has to be left out is told: truncated in an answer, an event gap in a
//     log.
//   - A stream ends with exactly one complete, unless its client has gone. While
//     nothing happens it sends comments.
//   - A client that does not read holds back its own program and nobody else.
//     It costs bounded memory, and is cut off after Options.Stall. Those who
//     follow a log hold back nobody at all.
//   - Whoever leaves takes the command of its request with it. Ending a program,
//     for that reason, for time or by kill_process, ends all that it started.
//     A program that ends by itself leaves its background children alone.
//   - A file is replaced in one step or not at all. Files of any size go in and
//     out in constant memory. Every operation is done inside the sandbox and with
//     the rights of its user.
//   - A request that is malformed changes nothing.
//   - Commands, environment, output, bodies and secrets are never logged.
//
// # Where the text is not followed
//
// In mode pool the text has whoever comes first claim the sandbox. Here a claim
// comes over loopback, or bears a token of the operator's, and its secret has
// MinSecret bytes or more.
//
// # Where the text is silent
//
// These are our decisions.
//
// Requests:
//
//   - Paths are also served below /koyeb-sandbox, which clients may be made to
//     put before them. A path that is not served is 404 and asks nobody whether
//     the request may pass, so it cannot become a pool's first. A method that an
//     endpoint does not have is 405, also for the seed's example that posts to
//     /process_logs_streaming.
//   - A body is one JSON object and nothing after it, in UTF-8, whatever its
//     Content-Type. Unknown fields are ignored, null is the same as left out, and
//     names are compared exactly. A known field that comes twice, a byte order
//     mark, an unpaired surrogate, nesting beyond 64 levels and more than 65536
//     members are 400.
//   - More than Options.MaxJSON to be held in memory is 413, as is more content
//     than Options.MaxContent; no byte for Options.BodyTimeout is 408.
//   - 503, upon which the protocol's client tries again by itself, is answered
//     only where nothing was started: the engine is at its limits, the sandbox
//     has too many files open, or the server is closing.
//
// Commands:
//
//   - timeout, ours, is a number of seconds for /run and /run_streaming. Without
//     it /run has the sandbox's own and /run_streaming has none. A command that
//     runs out of time has code -1 and says "timed out after 5s": as error in the
//     answer of /run, which keeps what was printed before, and as message in
//     complete.
//   - code is -1 for every program that has no exit code of its own: ended by a
//     signal, for memory, for time or for its output. error is there exactly when
//     code is not 0.
//   - /run keeps output up to the sandbox's limit, at most Options.MaxOutput; then
//     the program is ended, and the answer has truncated and an error that says how
//     much is there. A stream has no limit.
//   - encoding "base64", ours, has /run answer with the outputs' bytes in base64.
//   - A sandbox that is lost or stopped under a command of /run is 500; a stream
//     of one that is lost ends with complete, code -1 and a message.
//   - A working directory is taken as the kernel takes it: relative to
//     sandbar.DefaultDir, through links.
//
// Streams and logs:
//
//   - A line ends with a line feed; carriage returns before it are not part of
//     it. A line over 4 MiB, in a log 1 MiB, comes in several events, of which all
//     but the last have "partial":true; put together they are the line. The
//     beginning of a line waits for its end and holds up nobody.
//   - The two outputs of one process come in the order in which the server saw
//     them. What a program wrote to both at once has no order.
//   - A log's event has an id, "3-1" after three lines of stdout and one of
//     stderr. Last-Event-ID goes on after it, without loss or repeats; one that
//     cannot be an id of that log is 400.
//   - Lines that are no longer kept are told by an event gap with the data
//     {"lost":90,"of":"stdout"}, once to each reader who missed them, and also to
//     one who begins. It has no member stream, by which clients know a line.
//   - A timestamp has nine decimals and is UTC. Lines that were read from the
//     program together have the same.
//
// Processes:
//
//   - killed is whatever a signal ended, also one for memory; its exit_code is
//     -1. kill_process answers when all that the process had started is gone; if
//     it ended by itself in the meantime it was not running. started_at,
//     completed_at and exit_code are beyond the text; known clients take them and
//     would fail at any other.
//   - Finished processes are forgotten, the oldest first, beyond
//     Options.KeepFinished. Background processes outlive the server and end with
//     their sandbox.
//
// Files:
//
//   - write_file and PUT follow symbolic links to where they lead and replace the
//     file there in one step, with the mode it had, or 0644. Other names of the
//     same file (hard links) keep the old content. A file that nobody may write
//     is refused, although its directory would allow it to be replaced.
//   - write_file reads its content on into a file, of at most Options.MaxContent.
//     Known clients send path first. Content that comes before it goes into a
//     temporary file in the sandbox's home directory, which is moved to path.
//   - An error in the middle of read_file or list_dir, after some of the answer
//     has been sent, stands at its end. list_dir lists at most 1048576 names.
//   - /files?path= is ours. GET and HEAD know ranges and conditions; PUT makes a
//     file (201) or replaces one (204) and takes mode (octal) and parents
//     ("true"). 404, 403, 409 and 507 have the members error and code. The body
//     of a PUT that fails is read on, up to 1 GiB, for clients that look for an
//     answer only when they have sent all.
//   - A file beyond the engine's MaxFile is not read, holes included: 413 with the
//     code too_large, and an error in the answer of /read_file.
//
// Ports:
//
//   - A port is written in digits, 1 to 65535. Where nothing is bound a connection
//     is kept for 100 ms and closed, which health checks take for a success; where
//     nothing listens it is closed. The end of one direction is passed on, and
//     leaves the other open.
package executor
