// Package memfs is a file system in memory for sandboxes without a kernel. It has directories,
// regular files, symbolic and hard links and a few devices, with limits on bytes and inodes.
//
// # Invariants
//
//   - No path of the host is reachable. The package never calls the host's file system, and
//     symbolic links are resolved within the same [FS].
//   - Memory is bounded by [Limits], also for many small files, sparse files, large directories and
//     many links. Charged is what is allocated. The host's memory can exceed the limit by a small
//     constant for each inode, and be twice the limit if everything is overwritten after a
//     [Snapshot].
//   - [FS.Snapshot] and [FS.Restore] take constant time. The snapshot shares all data with the file
//     system. The first write to a shared inode copies the inode, and of a file's content the 64
//     KiB chunk that is written.
//   - It is safe for concurrent use. Every call is atomic.
//
// Paths are those of POSIX. They are separated by slashes and relative to the working directory
// that the caller passes (an absolute path inside the FS; "" is "/"). A path has at most 4096
// bytes, a name at most 255, and a resolution follows at most 40 symbolic links. Errors have the
// type [syscall.Errno], as from a kernel, except for io.EOF at the end of a file.
//
// Files have no owners: there is one user. Permission bits are stored but not enforced, as for the
// superuser. Access times are set when a file is created and by [FS.Chtimes] only.
package memfs
