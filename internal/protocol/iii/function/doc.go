// Package function is the sixteen functions of the iii-sandbox worker
// (docs/protocols.md, iii) over an engine: sandbox::create, exec, run, list, stop,
// catalog::list and the ten of sandbox::fs. It speaks of payloads only; package
// bus carries them, and package channel the bytes of files.
//
// [New] makes [Functions]. They can be served by an engine's side and by a
// worker's at the same time: [Functions.Handlers] binds them to whatever opens
// channels there.
//
// # What it promises
//
//   - A request that cannot be read is refused as the original does it, in the
//     words of its decoder; anything else that is wrong is one of the codes of
//     docs/iii-errors.md, as one JSON object that tells what happened and what
//     to do. Where the next call can be computed it stands in fix.
//   - A sandbox is known by a UUID, which is the second spelling of its
//     sandbar.ID; the first is accepted as well. Sandboxes that other protocols of
//     the same engine have made are listed, used and stopped as those made here,
//     as far as Options.Sees lets callers see them.
//   - A file that is written appears in one step or not at all. A stream that
//     breaks off never becomes a file.
//   - Whatever a program or a caller sends is bounded: output is cut at 1 MiB a
//     stream and said to be, listings and searches have limits.
//
// # Where it differs from the original
//
// On purpose, and so that clients of the original do not notice:
//
//   - Output beyond the cap is told by "truncated", a kill for memory by
//     "out_of_memory"; both keys are absent otherwise. The error of an exec that
//     ran out of time has what was written so far in "partial".
//   - sandbox::exec answers when the program has ended. What it left running in
//     the background with its output still open is not waited for.
//   - sandbox::stop without wait answers at once, with wait when all is gone.
//   - sandbox::fs::sed leaves files alone in which nothing was replaced, replaces
//     what a link points to rather than the link, and sees lines without their
//     newline, so that $ works. sandbox::fs::grep follows a link that is its root,
//     and passes over /proc, /sys and /dev unless they are its root.
//   - A recursive chmod does not touch links, nor what they point to.
//   - sandbox::fs::ls is sorted, and so are the matches of sandbox::fs::grep.
//   - An idle timeout below a second is a second. An expired sandbox ends at once
//     and not at the next of a reaper's rounds.
//   - network: true is refused where the server has no network to give.
//   - cpus and memory_mb of 0 are refused.
//   - Programs run as the image's sandbox user and not always as root; a chown to
//     another user is then S215.
//
// A 0-byte upload through a channel whose writer never connects, as npm's and
// Rust's clients do it, cannot be told from a writer that is gone: it is S218
// after 5 s, whose fix is the same request with an empty text.
package function
