package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/sandbar-dev/sandbar"
)

// Upload makes or replaces a file, in one step: a transfer that breaks off
// leaves what was there. size is how much r holds, or -1 if that is not known.
// mode 0 is the sandbox's default. With parents, missing directories are made.
func (c *Client) Upload(ctx context.Context, id, name string, r io.Reader, size int64, mode fs.FileMode, parents bool) error {
	query := url.Values{"path": {name}}
	if mode != 0 {
		query.Set("mode", fmt.Sprintf("%o", mode.Perm()))
	}
	if parents {
		query.Set("parents", "true")
	}
	source := &source{r: r}
	q, err := c.request(ctx, http.MethodPut, path(id, "executor", "files"), query, source)
	if err != nil {
		return err
	}
	q.ContentLength = size
	if size == 0 {
		q.Body = http.NoBody
	}
	resp, err := c.do(q)
	if source.err != nil { // why the transfer broke off, whatever came of that
		if err == nil {
			resp.Body.Close()
		}
		return sandbar.Errorf(sandbar.Unavailable, "what is to be sent cannot be read: %w", source.err)
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// source remembers why it could not be read.
type source struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Download is a file on its way. It must be closed.
type Download struct {
	io.ReadCloser
	Size int64 // in bytes
}

// Download opens a file of a sandbox. A read that fails with anything but
// io.EOF means that the file did not arrive whole.
func (c *Client) Download(ctx context.Context, id, name string) (*Download, error) {
	r, err := c.request(ctx, http.MethodGet, path(id, "executor", "files"), url.Values{"path": {name}}, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(r)
	if err != nil {
		return nil, err
	}
	if resp.ContentLength < 0 {
		resp.Body.Close()
		return nil, c.strange(errors.New("a file without its size"))
	}
	return &Download{ReadCloser: resp.Body, Size: resp.ContentLength}, nil
}

// MakeDir makes a directory and those above it; one that is there already is
// no error.
func (c *Client) MakeDir(ctx context.Context, id, name string) error {
	var done struct{ Error string }
	if err := c.call(ctx, http.MethodPost, path(id, "executor", "make_dir"), nil, map[string]string{"path": name}, &done); err != nil {
		return err
	}
	if done.Error != "" {
		return &sandbar.Error{Code: sandbar.Conflict, Message: done.Error}
	}
	return nil
}
