package executor

import (
	"context"
	"net/http"

	"github.com/sandbar-dev/sandbar"
)

// writeFile serves POST /write_file (docs/protocols.md, Executor: "Write
// File"). Where path comes before content, which is how known clients send
// them, content goes into the file as it arrives and may be of any length.
// Nothing is seen at path before the whole request has arrived and is in order.
func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) {
	files, ok := s.fsOr(w)
	if !ok {
		return
	}
	u := &upload{ctx: r.Context(), files: files}
	defer u.abort()
	if !s.read(w, r, u.read) {
		return
	}
	err := u.commit()
	s.answerDone(w, u.verb, u.path, err)
}

// upload is one request to write a file.
type upload struct {
	ctx   context.Context
	files sandbar.FS

	path string
	held []byte // content that came before the path
	file sandbar.FileWriter
	verb string // of err
	err  error  // why the file cannot be written; the request is read all the same
	out  []byte // what the file gets next
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
			if !named {
				text, err := j.text()
				u.held = []byte(text)
				return err
			}
			u.open()
			if err := j.stream(u.write); err != nil {
				return err
			}
			u.flush()
			return nil
		},
	}.read(j)
}

// open begins the file.
func (u *upload) open() {
	u.verb = "open"
	u.file, _, u.err = create(u.ctx, u.files, u.path, 0, false)
}

// write takes the next piece of content. After an error the rest is thrown
// away: the client hears of it when it has sent all.
func (u *upload) write(p []byte) error {
	if u.err == nil {
		if len(u.out)+len(p) > bufferSize {
			u.flush()
		}
		u.out = append(u.out, p...)
	}
	return u.ctx.Err()
}

func (u *upload) flush() {
	if u.err == nil && len(u.out) > 0 {
		u.verb = "write"
		_, u.err = u.file.Write(u.out)
	}
	u.out = u.out[:0]
}

// commit makes the file appear.
func (u *upload) commit() error {
	if u.file == nil && u.err == nil { // the content came first, or not at all
		u.open()
		if u.err == nil && len(u.held) > 0 {
			u.verb = "write"
			_, u.err = u.file.Write(u.held)
		}
	}
	if u.err == nil {
		u.verb = "open"
		u.err = u.file.Commit()
	}
	return u.err
}

func (u *upload) abort() {
	if u.file != nil {
		u.file.Abort()
	}
}
