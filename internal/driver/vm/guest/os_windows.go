package guest

import "io/fs"

// openNonblock is 0: Windows has no FIFOs in directories.
const openNonblock = 0

// inode returns 0: Windows does not report the number of a file here.
func inode(fs.FileInfo) uint64 { return 0 }
