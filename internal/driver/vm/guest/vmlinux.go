package guest

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxVmlinux bounds an uncompressed kernel, in bytes.
const maxVmlinux = 512 << 20

// extract returns the uncompressed kernel of an image of x86: vmlinux itself, or a bzImage
// (Documentation/arch/x86/boot.rst).
func extract(image []byte) ([]byte, error) {
	vmlinux := image
	if !bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		payload, err := payload(image)
		if err != nil {
			return nil, err
		}
		if vmlinux, err = unpackPayload(payload); err != nil {
			return nil, fmt.Errorf("unpacking the kernel: %w", err)
		}
	}
	return vmlinux, checkVmlinux(vmlinux)
}

// Offsets in the setup header of a bzImage.
const (
	headerSectors = 0x1f1
	headerMagic   = 0x202
	headerVersion = 0x206
	headerPayload = 0x248
	headerLength  = 0x24c
	headerEnd     = 0x250
)

// payload returns the compressed kernel in a bzImage.
func payload(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[headerMagic:headerMagic+4]) != "HdrS" {
		return nil, errors.New("not a Linux kernel for x86: neither an ELF file nor a bzImage")
	}
	if version := binary.LittleEndian.Uint16(image[headerVersion:]); version < 0x208 {
		return nil, errors.New("the kernel is too old: its boot protocol is older than 2.08")
	}
	sectors := int(image[headerSectors])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*512 + int(binary.LittleEndian.Uint32(image[headerPayload:]))
	end := start + int(binary.LittleEndian.Uint32(image[headerLength:]))
	if start >= end || end > len(image) {
		return nil, errors.New("the kernel is truncated")
	}
	return image[start:end], nil
}

// unpackPayload uncompresses a kernel. The kernel's build appends the uncompressed size to formats
// that do not contain it; the decompressors stop before it.
func unpackPayload(b []byte) ([]byte, error) {
	var r io.Reader
	var err error
	switch {
	case bytes.HasPrefix(b, []byte(elf.ELFMAG)):
		return b, nil
	case bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}) && len(b) > 4:
		var z *zstd.Decoder
		z, err = zstd.NewReader(bytes.NewReader(b[:len(b)-4]), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxVmlinux))
		if err == nil {
			defer z.Close()
			r = z
		}
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		var z *gzip.Reader
		z, err = gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			z.Multistream(false)
			r = z
		}
	default:
		return nil, errors.New("the kernel is compressed in a format other than zstd and gzip")
	}
	if err != nil {
		return nil, err
	}
	return readAll(r, maxVmlinux)
}

// readAll reads r to the end. More than most bytes are an error.
func readAll(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return b, err
}

// Note types with owner "Xen" (include/xen/interface/elfnote.h).
const notePVHEntry = 18

// checkVmlinux checks that a kernel is a 64-bit x86 ELF file with a PVH entry point, at which qemu
// can start it.
func checkVmlinux(b []byte) error {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return fmt.Errorf("the kernel is for %v and not for x86-64", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := readAll(p.Open(), 1<<20)
		if err != nil {
			return err
		}
		if hasNote(notes, f.ByteOrder, "Xen\x00", notePVHEntry) {
			return nil
		}
	}
	return errors.New("the kernel has no PVH entry point (CONFIG_PVH)")
}

// hasNote reports whether ELF notes contain one of this owner and type.
func hasNote(notes []byte, order binary.ByteOrder, owner string, kind uint32) bool {
	align := func(n int) int { return (n + 3) &^ 3 }
	for len(notes) >= 12 {
		name, desc, k := int(order.Uint32(notes)), int(order.Uint32(notes[4:])), order.Uint32(notes[8:])
		notes = notes[12:]
		if name > len(notes) || desc > len(notes) {
			return false
		}
		if k == kind && string(notes[:name]) == owner {
			return true
		}
		notes = notes[min(align(name)+align(desc), len(notes)):]
	}
	return false
}

// release returns the release in the kernel's banner, "Linux version RELEASE (…".
func release(vmlinux []byte) string {
	const banner = "Linux version "
	for rest := vmlinux; ; {
		i := bytes.Index(rest, []byte(banner))
		if i < 0 {
			return ""
		}
		rest = rest[i+len(banner):]
		word, _, ok := bytes.Cut(rest[:min(len(rest), 128)], []byte(" "))
		if ok && len(word) > 0 && word[0] >= '0' && word[0] <= '9' {
			return string(word)
		}
	}
}
