package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
)

// Recorder writes a file with the code and the result of each execution. Its Record is for
// engine.Config.Record.
//
// A file has the caller's code and the program's output. It has neither the environment nor the
// input, which may hold secrets.
type Recorder struct {
	o   RecorderOptions
	now func() time.Time
}

// RecorderOptions is the configuration of a Recorder.
type RecorderOptions struct {
	// Dir is the directory of the files. NewRecorder makes it. "" records nothing.
	Dir string
	// FailedOnly records only the executions that fail.
	FailedOnly bool
	// MaxOutput is the number of bytes kept of each output stream. Negative: 1 MiB.
	MaxOutput int64
	// Caps returns the facts about the driver of a name; "" is the engine's first. Required.
	Caps func(driver string) driver.Caps
	// Version is as in Rules.
	Version string
	// Failed is called with the error if an execution cannot be recorded. The execution's result
	// does not change. Required.
	Failed func(error)
}

// defaultRecordedOutput is RecorderOptions.MaxOutput if that is negative, in bytes.
const defaultRecordedOutput = 1 << 20

// NewRecorder makes the directory and a Recorder for it. If Dir is "", it returns nil, which is a
// Recorder that records nothing. Denied: the directory cannot be made, or is not writable.
func NewRecorder(o RecorderOptions) (*Recorder, error) {
	if o.Dir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Denied, Field: "code.artifacts",
			Message: "the directory " + sandbar.Quote(dir, 200) + " for code and results cannot be used", Err: err,
			Fix: "set code.artifacts (SANDBAR_CODE_ARTIFACTS) to a directory that can be written, or code.store (SANDBOX_STORE_CODE) to never"}
	}
	o.Dir = dir
	if o.MaxOutput < 0 {
		o.MaxOutput = defaultRecordedOutput
	}
	return &Recorder{o: o, now: time.Now}, nil
}

// prepare makes the directory and checks that files can be made in it.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Configure makes the engine of c record. A nil Recorder changes nothing.
func (r *Recorder) Configure(c *engine.Config) {
	if r != nil {
		c.Record = r.Record
	}
}

// artifact is the content of one file. The names are stable.
type artifact struct {
	Timestamp time.Time    `json:"timestamp"`
	Language  string       `json:"language"`
	Code      string       `json:"code"`
	Result    *Result      `json:"result"` // null if the program could not run
	Error     *recordError `json:"error"`  // null if it could
}

type recordError struct {
	Code    sandbar.Code `json:"code"`
	Message string       `json:"message"`
}

// Record implements engine.Config.Record. It does not record plain commands, which have no code.
func (r *Recorder) Record(j sandbar.Job, next engine.Sink) (engine.Sink, func(sandbar.Result, error)) {
	if j.Language == "" {
		return next, nil
	}
	c, began := newCapture(r.o.MaxOutput, next), r.now()
	return c, func(result sandbar.Result, err error) {
		a := r.artifact(j, c, result, err)
		a.Timestamp = began.UTC()
		if r.o.FailedOnly && a.Result != nil && a.Result.Succeeded() {
			return
		}
		if err := r.write(a); err != nil {
			r.o.Failed(&sandbar.Error{Code: sandbar.Unavailable, Field: "code.artifacts",
				Message: "the code and its result could not be kept", Err: err})
		}
	}
}

func (r *Recorder) artifact(j sandbar.Job, c *capture, result sandbar.Result, err error) artifact {
	caps := r.o.Caps(j.Spec.Driver)
	a := artifact{Language: j.Language, Code: j.Code}
	m := newMeta(caps, r.o.Version, j.Language, j.Spec.Limits, r.o.MaxOutput)
	if err == nil {
		x := newResult(result, c, m, j.Spec.Limits)
		a.Result = &x
	} else if x, blocked := newBlocked(err, m); blocked {
		a.Result = &x
	} else {
		a.Error = &recordError{sandbar.CodeOf(err), err.Error()}
	}
	return a
}

// write makes the file <time>_<hash of the code>.json, with a number if that name is taken.
func (r *Recorder) write(a artifact) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(a); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(a.Code))
	base := a.Timestamp.Format("20060102T150405.000000Z") + "_" + hex.EncodeToString(sum[:6])
	for try := range 1000 {
		name := base + ".json"
		if try > 0 {
			name = fmt.Sprintf("%s-%d.json", base, try)
		}
		name = filepath.Join(r.o.Dir, name)
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.Write(text.Bytes())
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(name))
		}
		return err
	}
	return fs.ErrExist
}
