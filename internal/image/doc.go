// Package image is where root file systems come from: it fetches images from
// registries, reads them from archives and directories, unpacks them and keeps
// them for all sandboxes of a host.
//
// All of it is somebody else's: references, manifests, layers, names in them.
// What the package promises whoever calls it:
//
//   - Strangers' bytes are parsed in a process of their own, the unpacker, for each
//     pull and import: confined to a staging directory, with no program and no
//     socket (see confine.Unpacker). The daemon dials, opens and answers for it,
//     checks its words, and moves its tree by the tree's own name.
//   - Nothing is resolved through what was unpacked. Every path is walked from
//     an open directory by names that were looked at first; a link is never
//     followed, a name that leads out refuses the whole image.
//   - Everything has a bound: entries, bytes, layers, depth, memory for
//     decompression, time. What exceeds one is refused, and nothing of it stays.
//   - Content is what its digest says, from the manifest to the last layer, both
//     as it travels and unpacked; what is not is refused.
//   - A registry is not a way into the operator's network: addresses that are
//     not public are dialled only for registries that the operator listed.
//   - Device nodes, FIFOs, setuid and setgid bits and extended attributes are
//     dropped. Everything belongs to the daemon's user, who can read it.
//   - An image appears in the store whole or not at all, is never written
//     afterwards, and is not removed while a sandbox of any process uses it. What
//     a process that was killed has left, GC removes.
//
// An image is kept as one tree, its layers applied one over the other, under
// the digest of its configuration. Sandboxes share the tree read-only; the
// driver puts a layer of each sandbox's own above it.
//
// A Catalogue is the operator's choice of what may be used, and under which
// names; its fields and its refusals are those of the iii protocol.
//
// Credentials for registries come from the caller or, like those of other
// tools, from the configuration of Docker in the user's home, which may name a
// helper program to ask. The daemon asks; the unpacker gets the answer.
package image
