package e2b

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/protocol/bulk"
)

const (
	// maxParts bounds the files of one upload.
	maxParts = 1000
	// readBuffer is the size of one read of a file or of an upload, in bytes.
	readBuffer = 256 << 10
	// metadataPrefix begins the headers with attributes of an uploaded file.
	metadataPrefix = "X-Metadata-"
)

// signature is the signature of a URL of /files: a client with the access token gives a path, for
// reading or for writing, to whoever has the URL.
type signature struct {
	text, path, operation, user, expiry string
}

func signatureOf(r *http.Request) signature {
	q := r.URL.Query()
	s := signature{text: q.Get("signature"), path: q.Get("path"), user: q.Get("username"), expiry: q.Get("signature_expiration")}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.operation = "read"
	case http.MethodPost:
		s.operation = "write"
	}
	return s
}

// by reports whether the signature was made with a token. It does not look at the expiry.
func (s signature) by(token string) bool {
	parts := []string{s.path, s.operation, s.user, token}
	if s.expiry != "" {
		parts = append(parts, s.expiry)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	return same(s.text, "v1_"+base64.RawStdEncoding.EncodeToString(sum[:])) && s.operation != "" && token != ""
}

// authorizeFile checks the access token of a request for files, or its signature. A wrong token is
// refused even with a right signature.
func (l *life) authorizeFile(r *http.Request) error {
	refusal := func(message string) error {
		return &sandbar.Error{Code: sandbar.Unauthenticated, Message: message}
	}
	if token := r.Header.Get(tokenHeader); token != "" {
		return l.authorize(r)
	}
	s := signatureOf(r)
	switch {
	case s.text == "":
		return refusal("missing signature query parameter")
	case !s.by(l.Token):
		return refusal("invalid signature")
	case s.expiry == "":
		return nil
	}
	at, err := strconv.ParseInt(s.expiry, 10, 64)
	if err != nil || !time.Now().Before(time.Unix(at, 0).Add(time.Second)) {
		return refusal("signature is already expired")
	}
	return nil
}

// serveFiles serves GET and POST of /files.
func (l *life) serveFiles(w http.ResponseWriter, r *http.Request) error {
	if err := l.authorizeFile(r); err != nil {
		return err
	}
	query := r.URL.Query()
	if err := checkUser(query.Get("username")); err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return l.download(w, r, query)
	case http.MethodPost:
		return l.upload(w, r, query)
	}
	notAllowed(w, r, "GET, POST")
	return nil
}

// download sends a file.
func (l *life) download(w http.ResponseWriter, r *http.Request, query url.Values) error {
	name, err := l.resolve(query.Get("path"))
	if err != nil {
		return err
	}
	encoding, ok := encodingOf(r)
	if !ok {
		answer(w, http.StatusNotAcceptable, errorBody{http.StatusNotAcceptable, "the file can be sent as it is, or with gzip"})
		return nil
	}
	f, err := l.sandbox.FS().Open(r.Context(), name)
	switch sandbar.CodeOf(err) {
	case "":
	case sandbar.NotFound:
		return &sandbar.Error{Code: sandbar.NotFound, Field: "path", Message: "path '" + printable(name) + "' does not exist", Err: err}
	case sandbar.Conflict:
		return invalid("path", "path '"+printable(name)+"' is a directory or a special file", "")
	default:
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	if mime.TypeByExtension(path.Ext(name)) == "" {
		w.Header().Set("Content-Type", "application/octet-stream") // no look at the content
	}
	w.Header().Set("Vary", "Accept-Encoding")
	w = stalling{w, http.NewResponseController(w), l.server.options.StallTimeout}
	if encoding == "gzip" && r.Header.Get("Range") == "" {
		w.Header().Set("Content-Encoding", "gzip")
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		}
		if r.Method == http.MethodHead {
			return nil
		}
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // a valid level
		if _, err := io.CopyBuffer(z, onlyReader{f}, make([]byte, readBuffer)); err != nil {
			panic(http.ErrAbortHandler) // the client sees that the file is not complete
		}
		z.Close()
		return nil
	}
	http.ServeContent(w, r, path.Base(name), f.Info().ModTime, f)
	return nil
}

// onlyReader hides other methods from io.Copy.
type onlyReader struct{ io.Reader }

// stalling gives each write of a response time of its own.
type stalling struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// Write implements io.Writer.
func (s stalling) Write(p []byte) (int, error) {
	s.control.SetWriteDeadline(time.Now().Add(s.stall))
	return s.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom; see bulk.ReadFrom.
func (s stalling) ReadFrom(r io.Reader) (int64, error) {
	return bulk.ReadFrom(s.ResponseWriter, r, func() error { return s.control.SetWriteDeadline(time.Now().Add(s.stall)) })
}

// encodingOf returns the encoding of a file's content: identity, unless the client accepts gzip and
// names no other. ok is false if the client accepts neither.
func encodingOf(r *http.Request) (encoding string, ok bool) {
	accepted, named := map[string]bool{}, []string{}
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, rest, _ := strings.Cut(part, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		q := strings.ReplaceAll(rest, " ", "")
		accepted[name] = !strings.HasPrefix(q, "q=0") || strings.Trim(q, "q=0.") != ""
		named = append(named, name)
	}
	any, hasAny := accepted["*"]
	identity, hasIdentity := accepted["identity"]
	switch {
	case slices.Equal(named, []string{"gzip"}) && accepted["gzip"]:
		return "gzip", true
	case hasIdentity && identity, !hasIdentity && (!hasAny || any):
		return "", true
	case accepted["gzip"] || any && !slices.Contains(named, "gzip"):
		return "gzip", true
	}
	return "", false
}

// written describes an uploaded file.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// upload writes files. The content is written as it arrives; a file appears when it is complete.
func (l *life) upload(w http.ResponseWriter, r *http.Request, query url.Values) error {
	for name := range r.Header {
		if strings.HasPrefix(name, metadataPrefix) {
			return unsupported(name, "files have no metadata here")
		}
	}
	body := io.Reader(&stallingBody{r.Body, http.NewResponseController(w), l.server.options.StallTimeout})
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return invalid("Content-Encoding", "the body is not in gzip's format", "")
		}
		body = z
	default:
		return invalid("Content-Encoding", "the encoding "+sandbar.Quote(encoding, 40)+" is not supported", "use gzip, or none")
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	target := query.Get("path")
	var all []written
	switch {
	case err == nil && kind == "application/octet-stream":
		if target == "" {
			return invalid("path", "path is missing", "")
		}
		var f written
		f, err = l.write(r.Context(), target, body)
		all = []written{f}
	case err == nil && kind == "multipart/form-data" && params["boundary"] != "":
		all, err = l.uploadParts(r.Context(), multipart.NewReader(body, params["boundary"]), target)
	default:
		return invalid("Content-Type", "the body must be application/octet-stream or multipart/form-data", "")
	}
	if err != nil {
		return err
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	answer(w, http.StatusOK, all)
	return nil
}

// uploadParts writes the parts named file of a form. Without a target each part's file name is its
// path.
func (l *life) uploadParts(ctx context.Context, parts *multipart.Reader, target string) ([]written, error) {
	all := []written{}
	seen := map[string]bool{}
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF { // without a wrapper: after the closing boundary
			return all, nil
		}
		if err != nil {
			return nil, invalid("", "the form is malformed or incomplete", "")
		}
		if part.FormName() != "file" {
			continue
		}
		name := target
		if name == "" {
			// not FileName: it drops the directories
			_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			name = params["filename"]
		}
		resolved, err := l.resolve(name)
		if err != nil {
			return nil, err
		}
		if seen[resolved] {
			return nil, invalid("path", "you cannot upload two files to the same path '"+printable(resolved)+"'", "")
		}
		if seen[resolved] = true; len(seen) > maxParts {
			return nil, sandbar.Errorf(sandbar.TooLarge, "an upload has at most %d files", maxParts)
		}
		f, err := l.write(ctx, name, part)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
}

// write writes one file.
func (l *life) write(ctx context.Context, name string, content io.Reader) (written, error) {
	resolved, err := l.resolve(name)
	if err != nil {
		return written{}, err
	}
	fs := l.sandbox.FS()
	f, err := fs.Create(ctx, resolved, sandbar.CreateOptions{Parents: true})
	if sandbar.CodeOf(err) == sandbar.Conflict {
		err = invalid("path", "path '"+printable(resolved)+"' is a directory, or below a file", "")
	}
	if err != nil {
		return written{}, err
	}
	defer f.Abort()
	most := l.server.options.MaxFile
	source := &sourceReader{Reader: io.LimitReader(content, most+1)}
	n, err := io.CopyBuffer(onlyWriter{f}, source, make([]byte, readBuffer))
	switch {
	case source.err != nil:
		return written{}, sandbar.Errorf(sandbar.Invalid, "the content could not be read to its end: %w", source.err)
	case err != nil:
		return written{}, err
	case n > most:
		return written{}, sandbar.Errorf(sandbar.TooLarge, "the file has more than %d bytes, which is all that is accepted", most)
	}
	if err := f.Commit(); err != nil {
		if sandbar.CodeOf(err) == sandbar.Conflict {
			err = invalid("path", "path '"+printable(resolved)+"' is a directory", "")
		}
		return written{}, err
	}
	return written{Name: path.Base(resolved), Path: resolved, Type: "file"}, nil
}

type onlyWriter struct{ io.Writer }

// sourceReader keeps an error of reading.
type sourceReader struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// stallingBody gives each read of a body time of its own.
type stallingBody struct {
	io.Reader
	control *http.ResponseController
	stall   time.Duration
}

// Read implements io.Reader.
func (s *stallingBody) Read(p []byte) (int, error) {
	s.control.SetReadDeadline(time.Now().Add(s.stall))
	return s.Reader.Read(p)
}
