//go:build !linux

package image

import (
	"os"
	"time"
)

// setTime sets the times of an open file.
func setTime(f *os.File, t time.Time) error { return os.Chtimes(f.Name(), t, t) }
