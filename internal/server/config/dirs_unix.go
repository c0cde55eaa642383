//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// foreign returns why a file is not private to this user, and a fix; "" if it is.
func foreign(info fs.FileInfo) (why, fix string) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "has no owner that could be checked", "choose another place"
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, not to user %d", st.Uid, os.Geteuid()), "choose another place, or run as its owner"
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Sprintf("is open to other users (mode %04o)", mode), fmt.Sprintf("chmod %03o it, or choose another place", mode&0o700)
	}
	return "", ""
}
