package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// Upload makes or replaces a file in one step: an incomplete transfer leaves an existing file
// unchanged. size is the number of bytes of r, or -1 if unknown. mode 0 is the sandbox's default.
// With parents, missing parent directories are made.
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
	if source.err != nil { // the reason of a broken transfer, whatever the answer
		if err == nil {
			resp.Body.Close()
		}
		return sandbar.Errorf(sandbar.Unavailable, "the input of the upload cannot be read: %w", source.err)
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// source stores the error of its reader.
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

// Download is a file in transfer. The caller must close it.
type Download struct {
	io.ReadCloser
	Size int64 // in bytes
}

// Download opens a file of a sandbox. A read error other than io.EOF means that the file is
// incomplete.
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
		return nil, c.badAnswer(errors.New("a file without its size"))
	}
	return &Download{ReadCloser: resp.Body, Size: resp.ContentLength}, nil
}

// Exists reports whether a file or directory exists.
func (c *Client) Exists(ctx context.Context, id, name string) (bool, error) {
	r, err := c.request(ctx, http.MethodHead, path(id, "executor", "files"), url.Values{"path": {name}}, nil)
	if err != nil {
		return false, err
	}
	resp, err := c.do(r)
	switch sandbar.CodeOf(err) {
	case "":
		return true, resp.Body.Close()
	case sandbar.Conflict: // a directory
		return true, nil
	case sandbar.NotFound:
		return false, nil
	}
	return false, err
}

// MakeDir makes a directory and missing parent directories. An existing directory is no error.
func (c *Client) MakeDir(ctx context.Context, id, name string) error {
	return c.change(ctx, id, "make_dir", name)
}

// Remove removes a file. NotFound: there is none.
func (c *Client) Remove(ctx context.Context, id, name string) error {
	return c.change(ctx, id, "delete_file", name)
}

// RemoveDir removes a directory with its contents.
func (c *Client) RemoveDir(ctx context.Context, id, name string) error {
	return c.change(ctx, id, "delete_dir", name)
}

// change makes a change of one path. The executor's protocol reports an error as a text.
func (c *Client) change(ctx context.Context, id, what, name string) error {
	var done struct{ Error string }
	if err := c.call(ctx, http.MethodPost, path(id, "executor", what), nil, map[string]string{"path": name}, &done); err != nil {
		return err
	}
	if done.Error != "" {
		code := sandbar.Conflict
		if strings.Contains(strings.ToLower(done.Error), "no such file") {
			code = sandbar.NotFound
		}
		return &sandbar.Error{Code: code, Message: done.Error}
	}
	return nil
}
