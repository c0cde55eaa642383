package memfs

import (
	"io/fs"
	"time"
)

// Info describes a file; it is an [fs.FileInfo] and an [fs.DirEntry].
type Info struct {
	name    string
	mode    fs.FileMode
	size    int64
	mtime   time.Time
	atime   time.Time
	ctime   time.Time
	number  uint64
	links   int
	charged int64
	device  Device
}

func newInfo(name string, i *inode) *Info {
	info := &Info{name: name, mode: i.mode, size: i.size, mtime: i.mtime, atime: i.atime, ctime: i.ctime,
		number: i.number, links: i.links, device: i.device}
	if i.mode.IsRegular() {
		info.charged = i.charge()
	}
	return info
}

// Name is the last name of the path by which it was found.
func (i *Info) Name() string { return i.name }

// Mode is the type and the permission bits.
func (i *Info) Mode() fs.FileMode { return i.mode }

// Type is the type alone.
func (i *Info) Type() fs.FileMode { return i.mode.Type() }

// IsDir reports whether it is a directory.
func (i *Info) IsDir() bool { return i.mode.IsDir() }

// Size is in bytes; of a link it is the length of what it holds.
func (i *Info) Size() int64 { return i.size }

// ModTime is when the contents last changed.
func (i *Info) ModTime() time.Time { return i.mtime }

// AccessTime is when it was made, unless Chtimes set another.
func (i *Info) AccessTime() time.Time { return i.atime }

// ChangeTime is when contents, names or permissions last changed.
func (i *Info) ChangeTime() time.Time { return i.ctime }

// Inode is the inode's number, which never becomes another's.
func (i *Info) Inode() uint64 { return i.number }

// Links is the number of names; of a directory two, and one for each directory in it.
func (i *Info) Links() int { return i.links }

// Allocated is what a regular file takes of the limit, in bytes.
func (i *Info) Allocated() int64 { return i.charged }

// Device is the device, "" for anything else.
func (i *Info) Device() Device { return i.device }

// Info returns i itself, as fs.DirEntry asks.
func (i *Info) Info() (fs.FileInfo, error) { return i, nil }

// Sys returns nil.
func (i *Info) Sys() any { return nil }
