package executor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// writeFile serves POST /write_file (docs/protocols.md, Executor: "Write File"). It writes the
// content to a file of the sandbox as it arrives, whichever of path and content comes first, so the
// server holds only a buffer of it. The file appears at path only after the whole request has
// arrived and is valid.
func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) {
	u := &upload{ctx: r.Context(), files: s.sandbox.FS(), left: s.options.MaxContent}
	defer u.abort()
	if !s.read(w, r, u.read) {
		return
	}
	err := u.commit()
	s.answerDone(w, r, u.verb, u.path, err)
}

// upload is a request to write a file.
type upload struct {
	ctx   context.Context
	files sandbar.FS

	path string
	file sandbar.FileWriter // nil until the content needs one
	pool string             // temporary path, if the content came before the path
	left int64              // bytes of content that are still allowed
	verb string             // verb of err
	// why the file cannot be written; the request is read to its end all the same
	err error
	out []byte // next bytes for the file
}

// read reads the request.
func (u *upload) read(j *jsonReader) error {
	named := false
	return fields{
		"path": func(j *jsonReader) (err error) {
			named = true
			u.path, err = j.text()
			return err
		},
		"content": func(j *jsonReader) error {
			if named {
				u.open()
			}
			if err := j.stream(u.write); err != nil {
				return err
			}
			if named {
				u.flush()
			}
			return nil
		},
	}.read(j)
}

// open starts the write of the file.
func (u *upload) open() {
	u.verb = "open"
	u.file, _, u.err = create(u.ctx, u.files, u.path, 0, false)
}

// write takes the next piece of content. After an error of the file it discards the rest, because
// the client reads the response only after it has sent all.
func (u *upload) write(p []byte) error {
	if u.left -= int64(len(p)); u.left < 0 {
		return errContent
	}
	if u.err == nil {
		if len(u.out)+len(p) > bufferSize {
			u.flush()
		}
		u.out = append(u.out, p...)
	}
	return u.ctx.Err()
}

// flush writes the collected bytes. Content before its path goes to a temporary file, unless the
// collected bytes are all of it.
func (u *upload) flush() {
	if u.err == nil && len(u.out) > 0 {
		if u.file == nil {
			u.openPool()
		}
		if u.err == nil {
			u.verb = "write"
			_, u.err = u.file.Write(u.out)
		}
	}
	u.out = u.out[:0]
}

// openPool creates a temporary file in the sandbox's home directory. Its name is random, so a
// program of the sandbox cannot plant a link there in advance.
func (u *upload) openPool() {
	var random [8]byte
	rand.Read(random[:])
	u.verb, u.pool = "open", ".sandbar-upload-"+hex.EncodeToString(random[:])
	u.file, u.err = u.files.Create(u.ctx, u.pool, sandbar.CreateOptions{Mode: 0o644})
}

// commit makes the file appear.
func (u *upload) commit() error {
	if u.pool != "" && u.err == nil {
		u.flush()
		u.place()
		return u.err
	}
	if u.file == nil && u.err == nil { // the content came first and is short, or there is none
		u.open()
		u.flush()
	}
	if u.err == nil {
		u.verb = "open"
		u.err = u.file.Commit()
	}
	return u.err
}

// place moves the temporary file to the path.
func (u *upload) place() {
	if u.err != nil {
		return
	}
	u.verb = "open"
	var t target
	if t, u.err = resolve(u.ctx, u.files, u.path); u.err != nil {
		return
	}
	if u.err = u.file.Commit(); u.err != nil {
		return
	}
	if t.mode != 0 && t.mode != 0o644 {
		if u.err = u.files.Chmod(u.ctx, u.pool, t.mode, false); u.err != nil {
			return
		}
	}
	err := u.files.Rename(u.ctx, u.pool, t.path)
	switch {
	case err == nil:
		u.pool = ""
	case errors.Is(err, syscall.EXDEV):
		u.err = u.copyPool() // the path is on another file system
	default:
		u.err = err
	}
}

// copyPool copies the temporary file to the path.
func (u *upload) copyPool() error {
	from, err := u.files.Open(u.ctx, u.pool)
	if err != nil {
		return err
	}
	defer from.Close()
	to, _, err := create(u.ctx, u.files, u.path, 0, false)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		to.Abort()
		return err
	}
	return to.Commit()
}

// removeTime bounds the removal of a temporary file after its client may have left.
const removeTime = 10 * time.Second

func (u *upload) abort() {
	if u.file != nil {
		u.file.Abort()
	}
	if u.pool != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), removeTime)
		defer cancel()
		_ = u.files.Remove(ctx, u.pool, false) // it may not exist
	}
}
