package memfs

import (
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"time"
)

// chunkSize is the unit of copying after a snapshot, in bytes. The first chunk of a small file is
// smaller.
const chunkSize = 64 << 10

// entryCost is the charge of a directory entry besides its name, in bytes.
const entryCost = 64

// pointerCost is the charge of an element in a file's list of chunks, in bytes.
const pointerCost = 8

// maxLinks bounds the hard links of an inode.
const maxLinks = 65000

// An inode is a file, directory, symbolic link or device. An inode of an earlier epoch is shared
// with a snapshot and must not be modified: FS.writable copies it first. The same applies to
// chunks.
type inode struct {
	number  uint64
	epoch   uint64
	mode    fs.FileMode // type and permission bits
	links   int
	mtime   time.Time
	atime   time.Time
	ctime   time.Time
	size    int64             // of a regular file; of a link the length of target
	chunks  []*chunk          // of a regular file; nil is a hole
	slots   int               // charged elements of chunks
	entries map[string]uint64 // of a directory, without "." and ".."
	parent  uint64            // of a directory
	target  string            // of a symbolic link
	device  Device            // of a device
}

// chunk is a part of a file. len(data) is chunkSize, or less for a file's first chunk.
type chunk struct {
	epoch uint64
	data  []byte
}

// copy returns a copy for another epoch, which shares the chunks.
func (i *inode) copy(epoch uint64) *inode {
	c := *i
	c.epoch = epoch
	c.chunks = slices.Clone(i.chunks)
	c.entries = maps.Clone(i.entries)
	return &c
}

// charge returns the charge of the inode's content, in bytes.
func (i *inode) charge() int64 {
	n := int64(len(i.target)) + int64(i.slots)*pointerCost
	for _, c := range i.chunks {
		if c != nil {
			n += int64(len(c.data))
		}
	}
	for name := range i.entries {
		n += entryCharge(name)
	}
	return n
}

func entryCharge(name string) int64 { return int64(len(name)) + entryCost }

// readAt copies the content at off to p. Holes are zeros.
func (i *inode) readAt(p []byte, off int64) int {
	if off >= i.size {
		return 0
	}
	p = p[:min(int64(len(p)), i.size-off)]
	clear(p)
	for done := 0; done < len(p); {
		at := off + int64(done)
		index, from := int(at/chunkSize), int(at%chunkSize)
		end := min(len(p), done+chunkSize-from)
		if index < len(i.chunks) && i.chunks[index] != nil && from < len(i.chunks[index].data) {
			copy(p[done:end], i.chunks[index].data[from:])
		}
		done = end
	}
	return len(p)
}

// writeAt writes p at off as far as the limits permit. i must be of f's epoch.
func (f *FS) writeAt(i *inode, p []byte, off int64) (int, error) {
	if off < 0 || off > f.maxSize()-int64(len(p)) {
		return 0, syscall.EFBIG
	}
	done := 0
	for done < len(p) {
		at := off + int64(done)
		index, from := int(at/chunkSize), int(at%chunkSize)
		n := min(len(p)-done, chunkSize-from)
		c, err := f.ownChunk(i, index, from+n)
		if err != nil {
			return done, err
		}
		copy(c.data[from:], p[done:done+n])
		done += n
		i.size = max(i.size, at+int64(n))
	}
	return done, nil
}

// ownChunk returns chunk index of i for writing, with at least need bytes.
func (f *FS) ownChunk(i *inode, index, need int) (*chunk, error) {
	if err := f.growList(i, index+1); err != nil {
		return nil, err
	}
	old := i.chunks[index]
	var have []byte
	if old != nil {
		have = old.data
	}
	if old != nil && old.epoch == f.epoch && len(have) >= need {
		return old, nil
	}
	size := len(have)
	if size < need {
		size = chunkSize
		if index == 0 {
			size = min(chunkSize, max(need, 2*len(have), 64))
		}
	}
	if !f.charge(int64(size - len(have))) {
		// The rounded size exceeds the limit; try the exact one.
		size = max(need, len(have))
		if index > 0 || !f.charge(int64(size-len(have))) {
			return nil, syscall.ENOSPC
		}
	}
	c := &chunk{epoch: f.epoch, data: make([]byte, size)}
	copy(c.data, have)
	i.chunks[index] = c
	return c, nil
}

// growList extends the list of chunks to at least n elements. Before that, it extends a small first
// chunk to chunkSize.
func (f *FS) growList(i *inode, n int) error {
	if n > 1 && len(i.chunks) > 0 && i.chunks[0] != nil && len(i.chunks[0].data) < chunkSize {
		if err := f.fillFirst(i); err != nil {
			return err
		}
	}
	if n <= len(i.chunks) {
		return nil
	}
	if n > i.slots {
		size := max(n, 2*i.slots)
		if !f.charge(int64(size-i.slots) * pointerCost) {
			if size = n; !f.charge(int64(size-i.slots) * pointerCost) {
				return syscall.ENOSPC
			}
		}
		i.slots = size
	}
	if n > cap(i.chunks) {
		grown := make([]*chunk, len(i.chunks), i.slots)
		copy(grown, i.chunks)
		i.chunks = grown
	}
	i.chunks = i.chunks[:n]
	return nil
}

// fillFirst extends the first chunk to chunkSize.
func (f *FS) fillFirst(i *inode) error {
	have := i.chunks[0].data
	if !f.charge(int64(chunkSize - len(have))) {
		return syscall.ENOSPC
	}
	c := &chunk{epoch: f.epoch, data: make([]byte, chunkSize)}
	copy(c.data, have)
	i.chunks[0] = c
	return nil
}

// truncate sets the size. It frees chunks beyond it; added bytes are a hole. i must be of f's
// epoch.
func (f *FS) truncate(i *inode, size int64) error {
	if size < 0 {
		return syscall.EINVAL
	}
	if size > f.maxSize() {
		return syscall.EFBIG
	}
	if size < i.size {
		f.cut(i, size)
	}
	i.size = size
	return nil
}

// cut frees the chunks beyond size and clears the rest of the last one.
func (f *FS) cut(i *inode, size int64) {
	keep := int((size + chunkSize - 1) / chunkSize)
	if keep < len(i.chunks) {
		before := i.charge()
		i.chunks, i.slots = slices.Clone(i.chunks[:keep]), keep
		f.give(before - i.charge())
	}
	from := int(size % chunkSize)
	if from == 0 || keep > len(i.chunks) || i.chunks[keep-1] == nil || from >= len(i.chunks[keep-1].data) {
		return
	}
	c := i.chunks[keep-1]
	if c.epoch != f.epoch {
		// A copy of the same size changes no charge.
		c = &chunk{epoch: f.epoch, data: slices.Clone(c.data)}
		i.chunks[keep-1] = c
	}
	clear(c.data[from:])
}
