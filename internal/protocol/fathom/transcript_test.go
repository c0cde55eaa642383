package fathom

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
)

// TestTranscripts plays testdata/*.txtar. Programs are scripts of the faulty driver. Lines of a
// setup section are settings of the engine, of the server and of the driver:
//
//	places N | queue N | queue-timeout D | grace D
//	executions N | max-code N | max-env N | max-stdin N
//	missing INTERPRETER                        the host lacks it
//	check languages                            Admit looks for interpreters
//	create-fails CODE MESSAGE                  sandboxes cannot be made
func TestTranscripts(t *testing.T) {
	wiretest.Protocol{
		Serve: func(t *testing.T, setup string) wiretest.Dial {
			s := readSetting(t, setup)
			return wiretest.WebSocket(newRig(t, s.engine, s.options, s.prepare).url, nil)
		},
		Split: splits,
	}.Run(t, "testdata/*.txtar")
}

// splits returns the field of a message that may arrive in several messages.
func splits(m map[string]any) string {
	if m["type"] == wire.Stdout || m["type"] == wire.Stderr {
		return "data"
	}
	return ""
}

func readSetting(t *testing.T, setup string) (s setting) {
	t.Helper()
	for line := range strings.Lines(setup) {
		if err := s.set(strings.TrimSpace(line)); err != nil {
			t.Fatalf("setup: %v: %s", err, line)
		}
	}
	return s
}

// setting is a parsed setup section.
type setting struct {
	engine  engine.Config
	options Options
	missing []string
	create  faulty.Hook
}

func (s *setting) prepare(d *faulty.Driver) { d.Missing, d.OnCreate = s.missing, s.create }

func (s *setting) set(line string) error {
	verb, arg, _ := strings.Cut(line, " ")
	switch verb {
	case "missing":
		s.missing = append(s.missing, arg)
		return nil
	case "check":
		s.engine.CheckLanguages = true
		return nil
	case "create-fails":
		code, text, _ := strings.Cut(arg, " ")
		s.create = func(context.Context) error {
			return &sandbar.Error{Code: sandbar.Code(code), Message: text}
		}
		return nil
	case "queue-timeout", "grace":
		d, err := time.ParseDuration(arg)
		if verb == "grace" {
			s.engine.Grace = d
		} else {
			s.engine.QueueTimeout = d
		}
		return err
	}
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	switch verb {
	case "places":
		s.engine.MaxSandboxes = n
	case "queue":
		s.engine.MaxQueue = n
	case "executions":
		s.options.MaxExecutions = n
	case "max-code":
		s.options.MaxCode = int64(n)
	case "max-env":
		s.options.MaxEnv = int64(n)
	case "max-stdin":
		s.options.MaxStdin = int64(n)
	default:
		return fmt.Errorf("there is no setting %s", verb)
	}
	return nil
}

// TestTranscriptsCover tests that every status and every error code of the specification occurs in
// a transcript, except the code OOM, which no present driver can produce: memory that runs out
// before a program runs is the platform's failure. See TestEndingBeforeStart.
func TestTranscriptsCover(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".txtar") {
			b, err := os.ReadFile("testdata/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
	}
	for _, s := range []Status{wire.Running, wire.Completed, wire.Failed, wire.Cancelled, wire.TimedOut, wire.OOM} {
		if !strings.Contains(all.String(), `"status":"`+string(s)+`"`) {
			t.Errorf("no transcript has the status %s", s)
		}
	}
	for _, c := range []Code{wire.CodeTimeout, wire.CodeOutputLimit, wire.CodeLanguageNotSupported, wire.CodeInvalidRequest, wire.CodeUnknownExecution,
		wire.CodeSandboxOverloaded, wire.CodeInternalError, wire.CodeNetworkError} {
		if !strings.Contains(all.String(), `"code":"`+string(c)+`"`) {
			t.Errorf("no transcript has the code %s", c)
		}
	}
}
