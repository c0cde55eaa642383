package v86

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
)

// statusLines reads the standard error of a worker: lines of progress during a boot, and the reason
// for which the worker exits. No output of a guest is in it.
type statusLines struct {
	progress func(text string)
	log      *slog.Logger

	mu      sync.Mutex
	line    []byte
	failure string
}

// maxLine is the number of bytes kept of one line.
const maxLine = 1000

// Write reads a part of the worker's standard error. It never fails.
func (s *statusLines) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		piece, rest, end := bytes.Cut(b, []byte("\n"))
		s.line = append(s.line, piece[:min(len(piece), maxLine-min(len(s.line), maxLine))]...)
		if end {
			s.say(string(s.line))
			s.line = s.line[:0]
		}
		b = rest
	}
	return n, nil
}

func (s *statusLines) say(line string) {
	if seconds, ok := strings.CutPrefix(line, worker.Progress); ok {
		s.progress("booting the image: " + seconds)
	} else if text, ok := strings.CutPrefix(line, worker.Failure); ok {
		s.failure = text
		s.log.Warn("a machine has stopped", "reason", text)
	}
}

// explain returns the worker's own reason for its exit as an error, or err if it gave none.
func (s *statusLines) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == "" {
		return err
	}
	return sandbar.Errorf(sandbar.Unavailable, "the machine has stopped: %s", s.failure)
}
