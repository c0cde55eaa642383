package executor

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// files serves /files?path=, an extension: GET and HEAD send a file unchanged, with ranges and
// conditions (RFC 9110, sections 13 and 14); PUT replaces one. Errors are JSON objects with the
// members error and code.
func (s *Server) files(w http.ResponseWriter, r *http.Request) {
	files := s.sandbox.FS()
	if r.Method == http.MethodPut {
		s.putFile(w, r, files)
	} else {
		s.getFile(w, r, files)
	}
}

// refuseFile responds to a file that cannot be sent or written.
func (s *Server) refuseFile(w http.ResponseWriter, text string, err error) {
	code := sandbar.CodeOf(err)
	answerJSON(w, statusOf(code), object(member{"error", text}, member{"code", string(code)}))
}

func (s *Server) getFile(w http.ResponseWriter, r *http.Request, files sandbar.FS) {
	name := r.URL.Query().Get("path")
	var f sandbar.File
	err := checkPath(name)
	if err == nil {
		f, err = files.Open(r.Context(), name)
	}
	if err != nil {
		s.refuseFile(w, pathText(openVerb(err), name, err), err)
		return
	}
	defer f.Close()
	info := f.Info()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", `"`+strconv.FormatInt(info.ModTime.UnixNano(), 36)+"-"+strconv.FormatInt(info.Size, 36)+`"`)
	http.ServeContent(s.out(w), r, "", info.ModTime, f)
}

func (s *Server) putFile(w http.ResponseWriter, r *http.Request, files sandbar.FS) {
	q := r.URL.Query()
	name := q.Get("path")
	mode, err := parseMode(q.Get("mode"))
	parents, perr := parseBool(q.Get("parents"))
	// a part must not replace the whole file (RFC 9110, section 14.4)
	if r.Header.Get("Content-Range") != "" {
		err = &sandbar.Error{Code: sandbar.Invalid, Field: "Content-Range", Message: "Invalid Content-Range: a file is sent as a whole"}
	}
	body := s.body(w, r)
	if err = or(err, perr); err != nil {
		drain(r, body)
		s.refuseFile(w, err.Error(), err)
		return
	}
	file, t, err := create(r.Context(), files, name, mode, parents)
	if err != nil {
		drain(r, body)
		s.refuseFile(w, pathText("open", name, err), err)
		return
	}
	defer file.Abort()
	if err := copyAhead(file, body, r.ContentLength); err != nil {
		s.refusePut(w, name, body, err)
		return
	}
	if err := file.Commit(); err != nil {
		s.refuseFile(w, pathText("open", name, err), err)
		return
	}
	if t.is {
		w.WriteHeader(http.StatusNoContent)
	} else {
		w.WriteHeader(http.StatusCreated)
	}
}

// drain reads the rest of a body, for clients that read the response only after they have sent all;
// see maxDrain. Clients that use Expect: 100-continue do not need it.
func drain(r *http.Request, b *body) {
	if r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, b, maxDrain)
	}
}

// refusePut responds to a failed upload, whether the file or the body failed.
func (s *Server) refusePut(w http.ResponseWriter, name string, b *body, err error) {
	w.Header().Set("Connection", "close")
	switch {
	case err != b.err:
		s.refuseFile(w, pathText("write", name, err), err)
	case errors.Is(b.err, os.ErrDeadlineExceeded):
		answerText(w, http.StatusRequestTimeout, "Request timeout")
	default:
		answerText(w, http.StatusBadRequest, "Invalid request")
	}
}

// parseMode parses octal permission bits, as in chmod; "" is 0.
func parseMode(s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 16)
	if err != nil || n == 0 || n > 0o777 {
		return 0, &sandbar.Error{Code: sandbar.Invalid, Field: "mode", Message: "Invalid mode: " + sandbar.Quote(s, 40) + " (octal, 1 to 777)"}
	}
	return fs.FileMode(n), nil
}

func parseBool(s string) (bool, error) {
	switch s {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, &sandbar.Error{Code: sandbar.Invalid, Field: "parents", Message: "Invalid parents: " + sandbar.Quote(s, 40) + ` ("true" or "false")`}
}
