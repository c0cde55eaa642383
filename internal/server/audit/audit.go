// Package audit writes the audit log: one JSON object for each action of a caller, on a line of a
// file or in a message to a syslog server. It implements engine.Auditor.
package audit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/process/cachedir"
)

// maxPending bounds the records that wait for a file that cannot be written, in bytes: those of the
// work that was in progress when it failed.
const maxPending = 1 << 20

// Options are the parameters of a Log.
type Options struct {
	// Path is the path of the file. A missing file is created with mode 0600.
	Path string
	// MaxBytes is the size at which a new file is begun. The earlier ones are called PATH.1 (the
	// newest), PATH.2 and so on.
	MaxBytes int64
	// Keep is the number of earlier files that are kept.
	Keep int
	// Logger reports failures to write. Default: discards.
	Logger *slog.Logger
}

// Log is an open audit log.
type Log struct {
	options Options

	mu      sync.Mutex
	file    *os.File
	size    int64  // of the file, in bytes
	pending []byte // records that are not written
	failed  error  // why; nil if pending is empty
}

var _ engine.Auditor = (*Log)(nil)

// Open opens the log to append to it. Invalid: the file cannot be opened, or is no regular file.
// Conflict: another process has it open.
func Open(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{options: o}
	switch err := l.open(); {
	case errors.Is(err, errBusy):
		return nil, &sandbar.Error{Code: sandbar.Conflict, Field: "audit.file", Message: "another process writes the audit log " + sandbar.Quote(o.Path, 200),
			Fix: "give each daemon a file of its own"}
	case err != nil:
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "audit.file", Message: "the audit log cannot be opened", Err: err,
			Fix: "name a file in a directory that the daemon's user can write to"}
	}
	return l, nil
}

// errBusy: another process has the lock of the file.
var errBusy = errors.New("the file is locked")

func (l *Log) open() error {
	f, err := os.OpenFile(l.options.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: l.options.Path, Err: errors.New("it is not a regular file")}
	}
	if err == nil {
		var busy bool
		if busy, err = cachedir.TryLock(f); busy {
			err = errBusy
		}
	}
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Close closes the file. Records that could not be written are lost.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.flush()
	return errors.Join(err, l.file.Close())
}

// line is a record in the file. Its names are stable.
type line struct {
	Time    time.Time   `json:"time"`
	Tenant  string      `json:"tenant,omitempty"` // "" for the default tenant
	Client  string      `json:"client"`           // the name of the token; "" for the daemon's own
	Address string      `json:"address,omitempty"`
	Action  engine.Verb `json:"action"`
	Sandbox sandbar.ID  `json:"sandbox,omitempty"`
	Outcome string      `json:"outcome"`
}

// encode returns the record of an action.
func encode(a engine.Action) []byte {
	b, err := json.Marshal(line{Time: a.Time.UTC(), Tenant: a.Client.Tenant, Client: a.Client.Name, Address: a.Client.Address, Action: a.Verb, Sandbox: a.Sandbox, Outcome: a.Outcome})
	if err != nil {
		panic(err) // texts and a time can be encoded
	}
	return b
}

// Record implements engine.Auditor.
func (l *Log) Record(a engine.Action) {
	b := encode(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending)+len(b) >= maxPending {
		l.options.Logger.Error("a record of the audit log is lost", "action", string(a.Verb), "sandbox", a.Sandbox, "error", l.failed)
		return
	}
	l.pending = append(append(l.pending, b...), '\n')
	before := l.failed
	if err := l.flush(); err != nil && before == nil {
		l.options.Logger.Error("the audit log cannot be written; the daemon refuses new work until it can", "error", err)
	}
}

// Ready implements engine.Auditor. It tries again to write.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		return nil
	}
	if err := l.flush(); err != nil {
		return &sandbar.Error{Code: sandbar.Unavailable, Message: "the audit log cannot be written", Err: err,
			Fix: "free space on its disk, or let the operator set audit.file to another one; then try again"}
	}
	l.options.Logger.Info("the audit log can be written again")
	return nil
}

// flush writes the pending records. A record is in the file whole or not at all. The caller has mu.
func (l *Log) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	if l.size > 0 && l.size+int64(len(l.pending)) > l.options.MaxBytes {
		if l.failed = l.rotate(); l.failed != nil {
			return l.failed
		}
	}
	n, err := l.file.Write(l.pending)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, l.file.Truncate(l.size))
		}
		l.failed = err
		return err
	}
	l.size += int64(n)
	l.pending, l.failed = l.pending[:0], nil
	return nil
}

// rotate begins a new file.
func (l *Log) rotate() error {
	if _, err := os.Lstat(l.options.Path); err == nil { // otherwise an earlier attempt has moved it
		if err := l.shift(); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := l.file
	if err := l.open(); err != nil {
		return err
	}
	return old.Close()
}

// shift renames the file and the earlier ones, and removes the oldest.
func (l *Log) shift() error {
	name := func(i int) string {
		if i == 0 {
			return l.options.Path
		}
		return l.options.Path + "." + strconv.Itoa(i)
	}
	if err := os.Remove(name(l.options.Keep)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := l.options.Keep; i > 0; i-- {
		if err := os.Rename(name(i-1), name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
