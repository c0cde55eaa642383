package memfs

import (
	"io/fs"
	"time"
)

// Info describes a file. It implements [fs.FileInfo] and [fs.DirEntry].
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

// Name returns the last name of the path.
func (i *Info) Name() string { return i.name }

// Mode returns the type and the permission bits.
func (i *Info) Mode() fs.FileMode { return i.mode }

// Type returns the type without the permission bits.
func (i *Info) Type() fs.FileMode { return i.mode.Type() }

// IsDir reports whether the file is a directory.
func (i *Info) IsDir() bool { return i.mode.IsDir() }

// Size returns the size in bytes; for a symbolic link, the length of its target.
func (i *Info) Size() int64 { return i.size }

// ModTime returns the time of the last change of the content.
func (i *Info) ModTime() time.Time { return i.mtime }

// AccessTime returns the time that Chtimes set, or else the time of creation.
func (i *Info) AccessTime() time.Time { return i.atime }

// ChangeTime returns the time of the last change of content, links or permissions.
func (i *Info) ChangeTime() time.Time { return i.ctime }

// Inode returns the inode number, which is never reused.
func (i *Info) Inode() uint64 { return i.number }

// Links returns the number of links. A directory has two, and one more for each subdirectory.
func (i *Info) Links() int { return i.links }

// Allocated returns the bytes that a regular file is charged.
func (i *Info) Allocated() int64 { return i.charged }

// Device returns the kind of device, or "" for another file.
func (i *Info) Device() Device { return i.device }

// Info returns i (fs.DirEntry).
func (i *Info) Info() (fs.FileInfo, error) { return i, nil }

// Sys returns nil.
func (i *Info) Sys() any { return nil }
