package outcome

import (
	"bytes"
	"io"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/truncate"
)

// Streams is an engine.Sink that writes a program's output to two writers.
type Streams struct {
	Err error // the error of a write, nil for none

	stdout, stderr io.Writer
	excerpts       [2]truncate.Prefix
	captured       [2]bytes.Buffer
}

// NewStreams returns Streams that write the first most bytes of each output, all if most is
// negative.
func NewStreams(stdout, stderr io.Writer, most int64) *Streams {
	e := truncate.Prefix{Max: most}
	return &Streams{stdout: stdout, stderr: stderr, excerpts: [2]truncate.Prefix{e, e}}
}

// Capture keeps the output for a Report instead of writing it.
func (s *Streams) Capture() { s.stdout, s.stderr = &s.captured[0], &s.captured[1] }

// Cut returns the names of the truncated outputs.
func (s *Streams) Cut() (names []string) {
	for i, stream := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		if s.excerpts[i].Truncated {
			names = append(names, stream.String())
		}
	}
	return names
}

// Started implements engine.Sink.
func (s *Streams) Started() {}

// Output implements engine.Sink. A write error ends the program.
func (s *Streams) Output(c sandbar.Chunk) error {
	w, e := s.stdout, &s.excerpts[0]
	if c.Stream == sandbar.Stderr {
		w, e = s.stderr, &s.excerpts[1]
	}
	p := e.Take(c.Data)
	if len(p) == 0 {
		return nil
	}
	if _, err := w.Write(p); err != nil {
		s.Err = err
		return err
	}
	return nil
}
