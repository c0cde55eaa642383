// Package function implements the sixteen functions of the iii-sandbox worker (docs/protocols.md,
// iii) over an engine: sandbox::create, exec, run, list, stop, catalog::list and the ten of
// sandbox::fs. It handles payloads only; package bus carries them, and package channel carries the
// bytes of files.
//
// [New] makes [Functions]. An engine's side and a worker's side can serve them at the same time:
// [Functions.Handlers] binds them to the side that opens channels.
//
// # Invariants
//
//   - A request that cannot be decoded is refused with the words of the original's decoder. Any
//     other error has a code of docs/iii-errors.md, in a JSON object with the cause and the next
//     step. If the next call can be computed, fix has its payload.
//   - A sandbox is identified by a UUID, the second spelling of its sandbar.ID; the first is
//     accepted too. Sandboxes that other protocols of the same engine have created are listed, used
//     and stopped like those created here, if Options.Visible lets callers see them.
//   - A written file appears atomically or not at all. A stream that breaks off never becomes a
//     file.
//   - Input of programs and callers is bounded: output is cut at 1 MiB per stream, with a mark;
//     listings and searches have limits.
//
// # Differences from the original
//
// These are deliberate, and clients of the original do not notice them:
//
//   - Cut output is marked by "truncated", a kill for memory by "out_of_memory"; otherwise both
//     keys are absent. The error of an exec that timed out has the output so far in "partial".
//   - sandbox::exec responds when the program has ended. It does not wait for background processes
//     that hold the output open.
//   - sandbox::stop without wait responds at once; with wait it responds when nothing of the
//     sandbox is left.
//   - sandbox::fs::sed leaves files without a match unchanged, edits the target of a link instead
//     of replacing the link, and sees lines without their newline, so $ works. sandbox::fs::grep
//     follows a link that is its root, and skips /proc, /sys and /dev unless they are its root.
//   - A recursive chmod changes neither links nor their targets.
//   - The results of sandbox::fs::ls and the matches of sandbox::fs::grep are sorted.
//   - An idle timeout below one second is one second. An expired sandbox ends at once instead of in
//     the next round of a reaper.
//   - network: true is refused if the server has no network.
//   - cpus and memory_mb of 0 are refused.
//   - Programs run as the image's sandbox user, which need not be root; chown to another user is
//     then S215.
//
// An empty upload whose writer never connects, as with the clients for npm and Rust, looks like a
// lost writer: it is S218 after 5 s, with a fix that repeats the request with an empty text.
package function
