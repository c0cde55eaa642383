// Package sandbar is the vocabulary of Sandbar, a platform that runs code
// nobody has reviewed behind real isolation and streams back what it did.
//
// The package holds words, not behaviour: what a sandbox is made from ([Spec],
// [Limits]), what runs in it ([Cmd], [Job]), what came of it ([Result],
// [Outcome], [Chunk]), how files in it are reached ([FS]) and how the platform
// says no ([Error], [Code]). It imports the standard library only, so every
// other package, and every program that embeds Sandbar, can share it.
//
// Two distinctions run through everything:
//
//   - A program's failure is a [Result]; the platform's failure is an [Error].
//     A program that exits 1, is killed for its memory or runs out of time has
//     a Result. Only when Sandbar itself could not do what was asked is there
//     an Error. Both enumerations are closed and each protocol maps all of
//     their members.
//   - Nothing is silently weakened. A limit that this host cannot enforce is
//     refused with [Unsupported] unless the caller set Spec.AllowDegraded, and
//     [Enforcements] tells how each limit is held.
//
// Package engine is the platform over this vocabulary; package driver is for
// those who implement a backend.
package sandbar
