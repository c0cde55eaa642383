// Package sandbar defines the types of Sandbar, a platform that runs untrusted
// code in isolated sandboxes and streams its output.
//
// The package has types and no behaviour: the description of a sandbox ([Spec], [Limits]), the
// program to run ([Cmd], [Job]), its result ([Result], [Outcome], [Chunk]), file access ([FS]) and
// errors ([Error], [Code]). It imports only the standard library, so every other package and every
// program that embeds Sandbar can use it.
//
// Two rules apply everywhere:
//
//   - A program's failure is a [Result]; the platform's failure is an [Error]. A program that exits
//     with 1, runs out of memory or reaches its time limit has a Result. There is an Error only if
//     Sandbar itself failed or refused the request. Both enumerations are closed, and each protocol
//     maps all of their members.
//   - Sandbar never silently weakens a limit. It refuses a limit that this host
//     cannot enforce with [Unsupported], unless the caller set
//     Spec.AllowDegraded. [Enforcements] names the mechanism of each limit.
//
// Package engine runs the sandboxes. Package driver has the interfaces that a backend implements.
package sandbar
