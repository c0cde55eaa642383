package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// decompress reads a stream that is gzip, zstd or neither, told by how it
// begins. Memory is bounded, whatever window the stream asks for.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, hostile("its gzip stream is damaged")
		}
		return translated{z}, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, hostile("its zstd stream is damaged")
		}
		return translated{z.IOReadCloser()}, nil
	}
	return io.NopCloser(b), nil
}

// translated says of a damaged stream that it is, and leaves other errors, those
// of the reader below, as they are.
type translated struct{ io.ReadCloser }

func (t translated) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		err = hostile("decompressing it would take more than " + size(maxWindow) + " of memory")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, zstd.ErrMagicMismatch), errors.Is(err, zstd.ErrCRCMismatch):
		err = hostile("a compressed stream is damaged")
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = hostile("a compressed stream ends too early")
	}
	return n, err
}

// counted takes what is read from a budget.
type counted struct {
	r    io.Reader
	left *int64
	err  func() error
}

func (c counted) Read(p []byte) (int, error) {
	if len(p) > 1 && int64(len(p)) > *c.left+1 {
		p = p[:*c.left+1]
	}
	n, err := c.r.Read(p)
	if terr := take(c.left, int64(n), c.err); terr != nil {
		return n, terr
	}
	return n, err
}
