// Package image identifies and reads the disk images of the v86 driver.
//
// # Invariants
//
//   - The type of an image is determined by its content. File names and extensions do not matter,
//     except for the members of a bundle.
//   - A file of no known type is an error that lists the known types.
//   - At most MaxSize bytes of a file are read.
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

// Type is the type of an image.
type Type string

// The types of images.
const (
	ISO    Type = "ISO image"
	Disk   Type = "raw disk"
	Kernel Type = "kernel (bzImage)"
	Bundle Type = "bundle of a kernel and an initial file system"
	State  Type = "saved state"
)

// MaxSize is the largest size of an image in bytes, because a machine has it in memory.
const MaxSize = 512 << 20

// DefaultCommandLine is the command line of a kernel without one. The console is the first serial
// port. The kernel trusts the TSC without calibrating it against another clock, and omits
// mitigations of CPU bugs that the emulated processor does not have.
const DefaultCommandLine = "console=ttyS0 tsc=reliable mitigations=off random.trust_cpu=on quiet"

// Image is an image in memory.
type Image struct {
	Type Type
	// Data is the image, or the kernel of a Bundle.
	Data []byte
	// Initrd is the initial file system of a Bundle, and CommandLine its kernel's command line.
	Initrd      []byte
	CommandLine string
}

// The magic numbers of the types and their offsets.
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
	// headSize is the number of bytes that classify needs.
	headSize = isoOffset + len(isoMagic)
)

var errUnknown = errors.New("it is of none of the known types: an ISO image, a raw disk with a boot sector, a Linux kernel (bzImage), " +
	"a directory or tar file with a kernel (vmlinuz or bzImage) and an initial file system (initrd), or a saved state of v86")

// classify returns the type of a file whose first bytes are head.
func classify(head []byte) (Type, error) {
	at := func(offset int, magic string) bool {
		return len(head) >= offset+len(magic) && string(head[offset:offset+len(magic)]) == magic
	}
	switch {
	case at(isoOffset, isoMagic): // an ISO image can also have a boot sector
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

// Check returns the type of the image at path without reading the whole file. The error's text
// continues a sentence about the image.
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
		return "", fmt.Errorf("it has %d bytes, more than the limit of %d", info.Size(), int64(MaxSize))
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, headSize)
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

// Open opens an image. Read reads it later, also after the process has lost access to path.
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

// Hash writes the whole image to w, and rewinds its files.
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
	kind, err := classify(data[:min(len(data), headSize)])
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

// partOf returns the part of a bundle that a file name stands for, or "".
func partOf(name string) string {
	for _, p := range []struct{ prefix, kind string }{{"vmlinuz", partKernel}, {"bzImage", partKernel},
		{"initrd", partInitrd}, {"initramfs", partInitrd}, {"cmdline", partCommandLine}} {
		if strings.HasPrefix(name, p.prefix) {
			return p.kind
		}
	}
	return ""
}

// parts finds the parts of a bundle in a directory. Of several candidates it takes the first by
// name.
func parts(dir string) (map[string]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	const most = 4096 // a larger directory is not a bundle
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
	kind, err := classify(b[partKernel][:min(len(b[partKernel]), headSize)])
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
