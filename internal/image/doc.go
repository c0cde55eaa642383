// Package image provides root file systems: it pulls images from registries, imports them from
// archives and directories, unpacks them, and stores them for all sandboxes of a host.
//
// All input is untrusted: references, manifests, layers, and the paths in them.
//
// Invariants:
//
//   - Untrusted bytes are parsed in a process of their own, the unpacker, one for each pull and
//     import. It is confined to a staging directory, and can start no program and create no socket
//     (confine.Unpacker). The daemon dials and opens files for it, checks its messages, and moves
//     the finished tree as a whole.
//   - No path is resolved through an unpacked tree. Every path is walked from an open directory, by
//     names that were checked first. Links are not followed. A path that leads out of the tree
//     refuses the whole image.
//   - Everything is bounded: entries, bytes, layers, depth, memory for decompression, time. An
//     image that exceeds a bound is refused and removed.
//   - Digests are verified for all content, from the manifest to the last layer, compressed and
//     uncompressed.
//   - A registry cannot reach the operator's network: non-public addresses are dialled only for
//     registries that the operator has listed.
//   - Device nodes, FIFOs, setuid and setgid bits and extended attributes are dropped. The daemon's
//     user owns all files and can read them.
//   - An image appears in the store atomically, is never modified afterwards, and is not removed
//     while a sandbox of any process uses it. GC removes what killed processes leave.
//
// The store keeps an image as one tree, its layers merged, under the digest of its configuration.
// Sandboxes share the tree read-only; the driver adds a writable layer per sandbox.
//
// A Catalogue has the names that the operator allows; its fields and refusals are those of the iii
// protocol.
//
// Registry credentials come from the caller or, as in other tools, from Docker's configuration in
// the user's home directory, which may name a helper program. The daemon runs that program; the
// unpacker gets only the credentials.
package image
