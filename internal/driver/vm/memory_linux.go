package vm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// A machine maps the file of its memory copy-on-write. Its memory is that file, except for the
// pages that it has written: the kernel has made anonymous pages for these, which /proc/PID/pagemap
// tells apart. So a copy of the file can be made while the machine runs, and only the written pages
// are copied while it stands still.

// pageSize is the size of a page, in bytes.
const pageSize = 4096

// The bits of an entry of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// region is a part of the monitor's address space that maps the file of the memory.
type region struct{ begin, end, offset uint64 }

// procFile opens a file of a process in /proc.
func procFile(c *spawn.Child, name string) (*os.File, error) {
	fd, err := c.Open(name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/proc/PID/" + name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// regionsOf returns the regions of a process that map a file privately. They must be all of it.
func regionsOf(c *spawn.Child, file *os.File) ([]region, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, err
	}
	maps, err := procFile(c, "maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	var all []region
	var mapped uint64
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var r region
		var mode, device string
		var inode uint64
		// The number of the device is another one on some file systems (overlay, btrfs).
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &r.begin, &r.end, &mode, &r.offset, &device, &inode); err != nil {
			return nil, err
		}
		if inode == st.Ino && len(mode) == 4 && mode[3] == 'p' && r.offset+r.end-r.begin <= uint64(st.Size) {
			all = append(all, r)
			mapped += r.end - r.begin
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if mapped != uint64(st.Size) {
		return nil, fmt.Errorf("the monitor maps %d of %d bytes of its memory's file", mapped, st.Size)
	}
	return all, nil
}

// copyWritten copies the pages that a stopped machine has written to a copy of the memory's file.
func copyWritten(c *spawn.Child, base, to *os.File) (err error) {
	regions, err := regionsOf(c, base)
	if err != nil {
		return err
	}
	pages, err := procFile(c, "pagemap")
	if err != nil {
		return err
	}
	defer pages.Close()
	memory, err := procFile(c, "mem")
	if err != nil {
		return err
	}
	defer memory.Close()
	w := pageWriter{from: memory, to: to}
	entries := make([]byte, 8<<13)
	for _, r := range regions {
		for at := r.begin; at < r.end; {
			n := min((r.end-at)/pageSize, uint64(len(entries)/8))
			if _, err := pages.ReadAt(entries[:n*8], int64(at/pageSize*8)); err != nil {
				return err
			}
			for i := range n {
				e := binary.NativeEndian.Uint64(entries[i*8:])
				if e&(pagePresent|pageSwapped) != 0 && e&pageOfFile == 0 {
					page := at + i*pageSize
					if err := w.add(page, page-r.begin+r.offset); err != nil {
						return err
					}
				}
			}
			at += n * pageSize
		}
	}
	return w.flush()
}

// maxRun is the most bytes that a pageWriter copies at once.
const maxRun = 256 << 10

// pageWriter copies pages. It joins those that follow one another.
type pageWriter struct {
	from, to       *os.File
	begin, offset  uint64 // of the run: in from and in to
	length         uint64
	buffer, zeroes [maxRun]byte
}

// add copies the page at an address to an offset.
func (w *pageWriter) add(address, offset uint64) error {
	if w.length == maxRun || address != w.begin+w.length || offset != w.offset+w.length {
		if err := w.flush(); err != nil {
			return err
		}
		w.begin, w.offset = address, offset
	}
	w.length += pageSize
	return nil
}

// flush copies the run. Pages of zeros become holes.
func (w *pageWriter) flush() error {
	b := w.buffer[:w.length]
	if _, err := w.from.ReadAt(b, int64(w.begin)); err != nil && len(b) > 0 {
		return err
	}
	for at := 0; at < len(b); {
		zero := isZero(b[at:], w.zeroes[:])
		end := at + pageSize
		for end < len(b) && isZero(b[end:], w.zeroes[:]) == zero {
			end += pageSize
		}
		var err error
		if zero {
			err = unix.Fallocate(int(w.to.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(w.offset)+int64(at), int64(end-at))
		}
		if !zero || errors.Is(err, unix.EOPNOTSUPP) {
			_, err = w.to.WriteAt(b[at:end], int64(w.offset)+int64(at))
		}
		if err != nil {
			return err
		}
		at = end
	}
	w.length = 0
	return nil
}

// isZero reports whether the first page of b is zero.
func isZero(b, zeroes []byte) bool { return string(b[:pageSize]) == string(zeroes[:pageSize]) }

// copySparse copies the content of a file to an empty file, which gets the same size. It leaves
// holes, and shares blocks if the file system can.
func copySparse(from, to *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := copyRange(from, to, data, hole); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

// copyRange copies the bytes from begin to end.
func copyRange(from, to *os.File, begin, end int64) error {
	for begin < end {
		source, target := begin, begin
		n, err := unix.CopyFileRange(int(from.Fd()), &source, int(to.Fd()), &target, int(min(end-begin, 1<<30)), 0)
		switch {
		case err == unix.EINTR:
		case err == unix.EXDEV, err == unix.EOPNOTSUPP, err == unix.ENOSYS, err == unix.EINVAL, err == unix.EPERM, err == nil && n == 0:
			_, err := io.Copy(io.NewOffsetWriter(to, begin), io.NewSectionReader(from, begin, end-begin))
			return err
		case err != nil:
			return err
		default:
			begin += int64(n)
		}
	}
	return nil
}

// copyFile copies a small file to a new file.
func copyFile(from *os.File, dir, name string) (*os.File, error) {
	to, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := copySparse(from, to); err != nil {
		to.Close()
		return nil, err
	}
	return to, nil
}

// diskSize returns the space that a file takes on disk, in bytes.
func diskSize(f *os.File) (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return st.Blocks * 512, err
}
