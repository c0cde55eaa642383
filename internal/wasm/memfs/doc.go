// Package memfs is the disk of a sandbox that has no kernel: a file system in
// memory with directories, regular files, symbolic and hard links and the few
// devices that programs expect, with a limit on bytes and on inodes.
//
// What it promises:
//
//   - No host path is reachable. The package never calls the host's file
//     system; a link leads only to another place of the same [FS].
//   - It is bounded. [Limits] hold for whatever a program does: many small
//     files, sparse files, long directories, many links. What is charged is
//     what is allocated, so that the limit also bounds the host's memory, up to a
//     small constant for each inode, and twice that while a [Snapshot] is kept
//     and everything is overwritten.
//   - [FS.Snapshot] and [FS.Restore] take the same short time whatever the
//     size. Both share everything until it is written to; then an inode, and of
//     a file the 64 KiB that are written, is copied.
//   - It is safe for concurrent use. Every call is atomic towards every other.
//
// Paths are those of POSIX: separated by slashes, resolved from the working
// directory that the caller names (an absolute path inside the FS, "/" when
// empty), at most 4096 bytes with names of at most 255, over at most 40
// symbolic links. Errors are always of type [syscall.Errno], as a kernel gives
// them, but for io.EOF at the end of a file.
//
// Owners do not exist: one user owns everything, and permission bits are kept
// and shown but forbid nothing, as for the superuser. Access times are set
// when a file is made and by [FS.Chtimes] only.
package memfs
