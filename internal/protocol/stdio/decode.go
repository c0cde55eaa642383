package stdio

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbar-dev/sandbar"
)

// The types of requests.
const (
	typeShell  = "shell"
	typeWrite  = "write_file"
	typeRead   = "read_file"
	typeReset  = "reset"
	typeStatus = "status"
	typeError  = "error" // of a response only
)

const types = `"shell", "write_file", "read_file", "reset" and "status"`

// Bounds of a command's time limit, in milliseconds.
const (
	defaultTimeLimit = 5000
	maxTimeLimit     = 3600_000
)

// request is a decoded line.
type request struct {
	kind string
	id   string

	command string        // shell
	limit   time.Duration // shell

	path    string      // write_file, read_file
	content []byte      // write_file
	mode    fs.FileMode // write_file
	base64  bool        // read_file
}

// refusal is the error answer to an invalid line. kind is typeError if the type or id could not be
// read; id is nil if there is none.
type refusal struct {
	kind string
	id   *string
	text string
}

// fields is a JSON object.
type fields map[string]json.RawMessage

// decode decodes a line. Exactly one of the results is not nil.
func decode(line []byte) (*request, *refusal) {
	f := fields{}
	if err := unmarshal(line, &f); err != nil {
		return nil, &refusal{kind: typeError, text: err.Error()}
	}
	refuse := func(kind string, id *string, format string, args ...any) (*request, *refusal) {
		return nil, &refusal{kind, id, fmt.Sprintf(format, args...)}
	}
	id, there, err := f.str("id")
	switch {
	case err != nil:
		return refuse(typeError, nil, "%v", err)
	case !there:
		return refuse(typeError, nil, `the request has no "id"`)
	}
	kind, there, err := f.str("type")
	switch {
	case err != nil:
		return refuse(typeError, &id, "%v", err)
	case !there:
		return refuse(typeError, &id, `the request has no "type"; there are %s`, types)
	}
	r := &request{kind: kind, id: id}
	switch kind {
	case typeShell:
		err = r.shell(f)
	case typeWrite:
		err = r.write(f)
	case typeRead:
		err = r.read(f)
	case typeReset, typeStatus:
	default:
		return refuse(typeError, &id, `there is no type %s; there are %s`, sandbar.Quote(kind, 40), types)
	}
	if err != nil {
		return refuse(kind, &id, "%v", err)
	}
	return r, nil
}

// unmarshal decodes the single JSON object of a line.
func unmarshal(line []byte, f *fields) error {
	if !utf8.Valid(line) {
		return fmt.Errorf("the line is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if err := d.Decode(f); err != nil || *f == nil {
		if err != nil && !strings.Contains(err.Error(), "cannot unmarshal") {
			return fmt.Errorf("the line is not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		return fmt.Errorf("the line is JSON, but not an object")
	}
	if rest := line[d.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return fmt.Errorf("there is something after the JSON object")
	}
	return nil
}

// str returns a string field; null counts as absent.
func (f fields) str(name string) (value string, there bool, err error) {
	raw, ok := f[name]
	if !ok || string(raw) == "null" {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", false, fmt.Errorf("%q must be a string", name)
	}
	return value, true, nil
}

// need returns a required string field.
func (f fields) need(name string) (string, error) {
	v, there, err := f.str(name)
	if err == nil && !there {
		err = fmt.Errorf("%q is missing", name)
	}
	return v, err
}

func (r *request) shell(f fields) (err error) {
	if r.command, err = f.need("command"); err != nil {
		return err
	}
	if strings.ContainsRune(r.command, 0) {
		return fmt.Errorf(`"command" has a NUL`)
	}
	r.limit, err = f.timeLimit()
	return err
}

func (f fields) timeLimit() (time.Duration, error) {
	raw, ok := f["time_limit_ms"]
	if !ok || string(raw) == "null" {
		return defaultTimeLimit * time.Millisecond, nil
	}
	var ms float64
	if json.Unmarshal(raw, &ms) != nil || math.IsNaN(ms) || ms <= 0 || ms > maxTimeLimit {
		return 0, fmt.Errorf(`"time_limit_ms" must be a number above 0, and at most %d`, maxTimeLimit)
	}
	return max(time.Duration(ms*float64(time.Millisecond)), time.Millisecond), nil
}

func (f fields) encoding() (isBase64 bool, err error) {
	e, there, err := f.str("encoding")
	switch {
	case err != nil || !there || e == "text":
		return false, err
	case e == "base64":
		return true, nil
	}
	return false, fmt.Errorf(`"encoding" %s is not known; there are "text" and "base64"`, sandbar.Quote(e, 40))
}

func (r *request) write(f fields) (err error) {
	if r.path, err = f.path(); err != nil {
		return err
	}
	content, err := f.need("content")
	if err != nil {
		return err
	}
	coded, err := f.encoding()
	if err != nil {
		return err
	}
	r.content = []byte(content)
	if coded {
		if r.content, err = base64.StdEncoding.DecodeString(content); err != nil {
			return fmt.Errorf(`"content" is not base64: %v`, err)
		}
	}
	r.mode, err = f.fileMode()
	return err
}

func (r *request) read(f fields) (err error) {
	if r.path, err = f.path(); err != nil {
		return err
	}
	r.base64, err = f.encoding()
	return err
}

func (f fields) path() (string, error) {
	p, err := f.need("path")
	switch {
	case err != nil:
		return "", err
	case p == "":
		return "", fmt.Errorf(`"path" is empty`)
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf(`"path" has a NUL`)
	}
	return p, nil
}

// fileMode returns a file's permission bits: three or four octal digits.
func (f fields) fileMode() (fs.FileMode, error) {
	text, there, err := f.str("mode")
	if err != nil || !there {
		return 0o644, err
	}
	bits, err := strconv.ParseUint(text, 8, 32)
	if err != nil || len(text) < 3 || len(text) > 4 || strings.ContainsAny(text, "+-_") {
		return 0, fmt.Errorf(`"mode" %s must be three or four octal digits, such as "0644"`, sandbar.Quote(text, 40))
	}
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	if mode == 0 {
		return 0, fmt.Errorf(`"mode" %s leaves no permission at all`, sandbar.Quote(text, 40))
	}
	return mode, nil
}
