// Package image tells what a disk image for the mode v86 is, by what is in it,
// and reads it.
//
// What it promises: names and endings are not looked at; what is none of the
// known types is an error that lists them; nothing is read beyond a limit.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Type is what an image is.
type Type string

// The types of images.
const (
	ISO    Type = "ISO image"
	Disk   Type = "raw disk"
	Kernel Type = "kernel (bzImage)"
	Bundle Type = "bundle of a kernel and an initial file system"
	State  Type = "saved state"
)

// MaxSize is the largest image, in bytes: a machine has it in memory.
const MaxSize = 512 << 20

// DefaultCommandLine is what a kernel is told that comes without words of its
// own: its console is the first serial port, it need not measure the
// processor's clock against another, nor guard against what an emulated
// processor does not do.
const DefaultCommandLine = "console=ttyS0 tsc=reliable mitigations=off random.trust_cpu=on quiet"

// Image is an image that was read.
type Image struct {
	Type Type
	// Data is the image, or of a Bundle its kernel.
	Data []byte
	// Initrd is the initial file system of a Bundle, and CommandLine what its
	// kernel is told.
	Initrd      []byte
	CommandLine string
}

// What tells the types apart.
const (
	isoOffset    = 32769
	isoMagic     = "CD001"
	kernelOffset = 0x202
	kernelMagic  = "HdrS"
	bootOffset   = 510
	bootMagic    = "\x55\xaa"
	tarOffset    = 257
	tarMagic     = "ustar"
	stateMagic   = 0x86768676
	zstdMagic    = "\x28\xb5\x2f\xfd"
	// enough is how much of a file is looked at.
	enough = isoOffset + len(isoMagic)
)

var errUnknown = errors.New("it is not an image this program knows: an ISO image, a raw disk with a boot sector, a Linux kernel (bzImage), " +
	"a directory or tar file with a kernel (vmlinuz or bzImage) and an initial file system (initrd), or a saved state of v86")

// classify tells what a file is that begins with head.
func classify(head []byte) (Type, error) {
	at := func(offset int, magic string) bool {
		return len(head) >= offset+len(magic) && string(head[offset:offset+len(magic)]) == magic
	}
	switch {
	case at(isoOffset, isoMagic): // before a boot sector, which an ISO image can have too
		return ISO, nil
	case at(kernelOffset, kernelMagic):
		return Kernel, nil
	case at(tarOffset, tarMagic):
		return Bundle, nil
	case len(head) >= 4 && binary.LittleEndian.Uint32(head) == stateMagic, at(0, zstdMagic):
		return State, nil
	case at(bootOffset, bootMagic):
		return Disk, nil
	}
	return "", errUnknown
}

// Check tells what the image at path is, without reading all of it. The error
// is one sentence.
func Check(path string) (Type, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		_, err := parts(path)
		return Bundle, err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is neither a file nor a directory")
	}
	if info.Size() > MaxSize {
		return "", fmt.Errorf("it has %d bytes, and %d are possible", info.Size(), int64(MaxSize))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, enough)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return classify(head[:n])
}

// Files are the open files of an image.
type Files struct {
	whole *os.File
	part  map[string]*os.File // of a directory
}

// Open opens an image, so that it can be read later.
func Open(path string) (*Files, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := os.Open(path)
		return &Files{whole: f}, err
	}
	names, err := parts(path)
	if err != nil {
		return nil, err
	}
	files := &Files{part: map[string]*os.File{}}
	for kind, name := range names {
		f, err := os.Open(filepath.Join(path, name))
		if err != nil {
			files.Close()
			return nil, err
		}
		files.part[kind] = f
	}
	return files, nil
}

// Close closes the files.
func (f *Files) Close() {
	if f.whole != nil {
		f.whole.Close()
	}
	for _, p := range f.part {
		p.Close()
	}
}

// Hash writes all that the image consists of.
func (f *Files) Hash(w io.Writer) error {
	if f.whole != nil {
		_, err := io.Copy(w, f.whole)
		return errors.Join(err, rewind(f.whole))
	}
	for _, kind := range []string{partKernel, partInitrd, partCommandLine} {
		p := f.part[kind]
		if p == nil {
			continue
		}
		info, err := p.Stat()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s %d\n", kind, info.Size())
		if _, err := io.Copy(w, p); err != nil {
			return err
		}
		if err := rewind(p); err != nil {
			return err
		}
	}
	return nil
}

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// Read reads the image.
func (f *Files) Read() (*Image, error) {
	if f.whole == nil {
		b := map[string][]byte{}
		for kind, p := range f.part {
			data, err := limited(p, MaxSize)
			if err != nil {
				return nil, err
			}
			b[kind] = data
		}
		return bundle(b)
	}
	data, err := limited(f.whole, MaxSize)
	if err != nil {
		return nil, err
	}
	kind, err := classify(data[:min(len(data), enough)])
	switch {
	case err != nil:
		return nil, err
	case kind == Bundle:
		return untar(data)
	}
	return &Image{Type: kind, Data: data, CommandLine: DefaultCommandLine}, nil
}

func limited(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return b, err
}

// The parts of a bundle.
const (
	partKernel      = "kernel"
	partInitrd      = "initrd"
	partCommandLine = "cmdline"
)

// partOf tells which part of a bundle a file is by its name; "" for none.
func partOf(name string) string {
	for _, p := range []struct{ prefix, kind string }{{"vmlinuz", partKernel}, {"bzImage", partKernel},
		{"initrd", partInitrd}, {"initramfs", partInitrd}, {"cmdline", partCommandLine}} {
		if strings.HasPrefix(name, p.prefix) {
			return p.kind
		}
	}
	return ""
}

// parts finds the parts of a bundle that is a directory, by the names' order.
func parts(dir string) (map[string]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	const most = 4096 // a directory with more is something else
	names, err := d.Readdirnames(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	found := map[string]string{}
	for _, name := range names {
		if kind := partOf(name); kind != "" && found[kind] == "" {
			found[kind] = name
		}
	}
	if found[partKernel] == "" || found[partInitrd] == "" {
		return nil, errors.New("it is a directory without a kernel (vmlinuz or bzImage) and an initial file system (initrd)")
	}
	return found, nil
}

// untar reads a bundle that is a tar file.
func untar(data []byte) (*Image, error) {
	r := tar.NewReader(bytes.NewReader(data))
	b := map[string][]byte{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return bundle(b)
		}
		if err != nil {
			return nil, err
		}
		kind := partOf(filepath.Base(h.Name))
		if h.Typeflag != tar.TypeReg || kind == "" || b[kind] != nil {
			continue
		}
		if b[kind], err = limited(r, MaxSize); err != nil {
			return nil, err
		}
	}
}

func bundle(b map[string][]byte) (*Image, error) {
	kind, err := classify(b[partKernel][:min(len(b[partKernel]), enough)])
	if err != nil || kind != Kernel || len(b[partInitrd]) == 0 {
		return nil, errors.New("it is a bundle without a Linux kernel (vmlinuz or bzImage) and an initial file system (initrd)")
	}
	line := strings.TrimSpace(string(b[partCommandLine]))
	if line == "" {
		line = DefaultCommandLine
	}
	if len(line) > 2000 || strings.ContainsAny(line, "\x00\n") {
		return nil, errors.New("its command line is not one line of at most 2000 bytes")
	}
	return &Image{Type: Bundle, Data: b[partKernel], Initrd: b[partInitrd], CommandLine: line}, nil
}
