package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// decompress reads a gzip, zstd or uncompressed stream, recognised by its first bytes. Memory is
// bounded, whatever window the stream declares.
func decompress(r io.Reader) (io.ReadCloser, error) {
	source := &source{r: r}
	b := bufio.NewReaderSize(source, 64<<10)
	head, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, source.explain(err)
		}
		return translated{z, source}, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, source.explain(err)
		}
		return translated{z.IOReadCloser(), source}, nil
	}
	return io.NopCloser(b), nil
}

// source is the compressed stream. It records its own error, to distinguish it from the
// decompressor's.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// explain returns that the stream is damaged, unless its source has failed.
func (s *source) explain(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case s.err != nil:
		return s.err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return malformed("decompressing it would take more than " + size(maxWindow) + " of memory")
	}
	return malformed("a compressed stream is damaged or ends too early")
}

// translated is a decompressor with explained errors.
type translated struct {
	io.ReadCloser
	source *source
}

func (t translated) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	return n, t.source.explain(err)
}

// countedReader charges read bytes to a budget.
type countedReader struct {
	r    io.Reader
	left *int64
	err  func() error
}

func (c countedReader) Read(p []byte) (int, error) {
	if len(p) > 1 && int64(len(p)) > *c.left+1 {
		p = p[:*c.left+1]
	}
	n, err := c.r.Read(p)
	if terr := take(c.left, int64(n), c.err); terr != nil {
		return n, terr
	}
	return n, err
}
