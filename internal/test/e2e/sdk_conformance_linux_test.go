package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/dockerd"
)

// sdkStep is a step of testdata/sdk/conformance.json.
type sdkStep struct {
	Op   string          `json:"op"`   // what it does
	On   string          `json:"on"`   // the object that does it; default "box"
	As   string          `json:"as"`   // the name of the object that it makes
	Args json.RawMessage `json:"args"` // an object
	sdkWant
	// Except are other expectations, by names of cases: "docker", and "user" for native without
	// cgroups that freeze sandboxes.
	Except map[string]sdkWant `json:"except"`
}

// sdkWant is the expected outcome of a step: a value (see difference), or the code of an error and
// the wrong field.
type sdkWant struct {
	Want  any    `json:"want"`
	Error string `json:"error"`
	Field string `json:"field"`
}

// sdkOutcome is the outcome of a step. Absent: the object of the step was not made.
type sdkOutcome struct {
	Value  json.RawMessage `json:"value"`
	Error  string          `json:"error"`
	Field  string          `json:"field"`
	Absent bool            `json:"absent"`
}

// The SDKs, installed from the packages that scripts/sdk.sh builds, do all steps of
// testdata/sdk/conformance.json with the same outcomes. Their streams continue on broken
// connections.
func TestSDKs(t *testing.T) {
	testenv.Need(t, testenv.UserNS, testenv.PyWheels, testenv.NpmTypeScript)
	file, err := filepath.Abs("testdata/sdk/conformance.json")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []sdkStep
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&steps); err != nil || len(steps) < 100 {
		t.Fatalf("%s: %d steps, %v", file, len(steps), err)
	}
	dir := t.TempDir()
	buildSDKs(t, dir)
	conform := func(t *testing.T, name string, settings ...string) {
		// An interrupted cell must report its end within the grace, also on a busy host.
		d := newDaemon(t, t.TempDir(), append(settings, "SANDBAR_GRACE=5s")...)
		proxy := newCutter(t, d.addr)
		for runner, args := range map[string][]string{
			"python": {"/usr/bin/python3", "conformance.py", "sync"}, "python async": {"/usr/bin/python3", "conformance.py", "async"},
			"typescript": {"/usr/bin/node", "conformance.mjs"}, "go": nil,
		} {
			t.Run(runner, func(t *testing.T) {
				before := proxy.count()
				var outcomes []sdkOutcome
				if args == nil {
					outcomes = goOutcomes(t, proxy.addr, steps)
				} else {
					outcomes = sdkOutcomes(t, dir, proxy.addr, file, args)
				}
				checkOutcomes(t, name, steps, outcomes)
				if cuts := proxy.count() - before; cuts < 3 {
					t.Errorf("%d streams were cut", cuts)
				}
			})
		}
		d.endClean(t)
	}
	t.Run("native", func(t *testing.T) {
		testenv.Need(t, testenv.Python, testenv.Node)
		name := "native"
		if !testenv.Freezer.Met() {
			name = "user"
		}
		conform(t, name, "SANDBAR_DRIVER=native")
	})
	t.Run("docker", func(t *testing.T) {
		e := engines.Engine(t)
		conform(t, "docker", "SANDBAR_DRIVER=docker", "SANDBAR_DRIVERS={docker: {host: "+e.Host()+"}}", "DOCKER_IMAGE="+dockerd.Image)
	})
}

// sdkOutcomes runs a program that does the steps of a file, and returns the outcomes.
func sdkOutcomes(t *testing.T, dir, addr, steps string, args []string) []sdkOutcome {
	t.Helper()
	cmd := exec.CommandContext(within(t, 5*time.Minute), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(environ(), "SANDBAR_URL=http://"+addr, "SANDBAR_TOKEN="+token, "PYTHONPATH="+filepath.Join(dir, "py"),
		"STEPS="+steps, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		t.Errorf("%v: %v: %s", args, err, &said)
	}
	var outcomes []sdkOutcome
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var o sdkOutcome
		if err := d.Decode(&o); err != nil {
			t.Fatalf("%v: outcome %d: %v", args, len(outcomes), err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// goOutcomes does the steps with package client, and returns the outcomes.
func goOutcomes(t *testing.T, addr string, steps []sdkStep) []sdkOutcome {
	t.Helper()
	r := &goRunner{ctx: within(t, 5*time.Minute), url: "http://" + addr, objects: map[string]goObject{}}
	defer r.close()
	var outcomes []sdkOutcome
	for _, s := range steps {
		o, err := r.step(s)
		if err != nil {
			t.Errorf("%s %s: %v", s.Op, s.Args, err)
			break
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// checkOutcomes compares outcomes with the steps. An object is absent if the step that makes it
// must fail.
func checkOutcomes(t *testing.T, name string, steps []sdkStep, outcomes []sdkOutcome) {
	t.Helper()
	absent := map[string]bool{}
	for i, s := range steps {
		if i >= len(outcomes) {
			t.Fatalf("%d outcomes of %d steps", len(outcomes), len(steps))
		}
		got, want := outcomes[i], s.sdkWant
		for names, x := range s.Except {
			if slices.Contains(strings.Fields(names), name) {
				want = x
			}
		}
		if s.As != "" {
			absent[s.As] = want.Error != "" || absent[s.On]
		}
		var value any
		if got.Value != nil {
			if err := json.Unmarshal(got.Value, &value); err != nil {
				t.Fatal(err)
			}
		}
		where := fmt.Sprintf("step %d, %s %s %s", i, s.Op, s.On, s.Args)
		switch {
		case got.Absent || absent[s.On]:
			if got.Absent != absent[s.On] {
				t.Errorf("%s: the object is absent: %v, want %v", where, got.Absent, absent[s.On])
			}
		case got.Error != want.Error || want.Error != "" && got.Field != want.Field:
			t.Errorf("%s: error %q of field %q, want %q of %q; value %s", where, got.Error, got.Field, want.Error, want.Field, got.Value)
		case want.Error == "":
			if d := difference("", value, want.Want); d != "" {
				t.Errorf("%s: %s", where, d)
			}
		}
	}
}

// difference describes the first difference of two values of JSON, "" for none. An object may lack
// a member that is empty in the other one. An object with the member $match is a regular expression
// for a text.
func difference(at string, got, want any) string {
	pattern, _ := want.(map[string]any)
	if p, ok := pattern["$match"].(string); ok {
		if text, ok := got.(string); !ok || !regexp.MustCompile(p).MatchString(text) {
			return fmt.Sprintf("%s is %#v, want a match of %s", at, got, p)
		}
		return ""
	}
	switch got := got.(type) {
	case map[string]any:
		for name := range pattern {
			if _, ok := got[name]; !ok {
				return fmt.Sprintf("%s has no %s", at, name)
			}
		}
		for name, value := range got {
			if d := difference(at+"."+name, value, pattern[name]); d != "" && !(empty(value) && pattern[name] == nil) {
				return d
			}
		}
		return ""
	case []any:
		list, _ := want.([]any)
		if len(got) != len(list) {
			return fmt.Sprintf("%s has %d elements, want %d: %v", at, len(got), len(list), got)
		}
		for i := range got {
			if d := difference(fmt.Sprintf("%s[%d]", at, i), got[i], list[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if got != want {
		return fmt.Sprintf("%s is %#v, want %#v", at, got, want)
	}
	return ""
}

// empty reports whether a value of JSON says nothing.
func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil || v == "" || v == false || v == 0.0
}

// cutter is a proxy that cuts connections with a process's log, or with events, after a part of
// it.
type cutter struct {
	addr string
	mu   sync.Mutex
	cuts int
}

// cutAfter is the number of bytes of such a response before the cut.
const cutAfter = 1800

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: ln.Addr().String()}
	var conns sync.WaitGroup
	t.Cleanup(func() { ln.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			outside, err := ln.Accept()
			if err != nil {
				return
			}
			inside, err := net.Dial("tcp", to)
			if err != nil {
				outside.Close()
				continue
			}
			conns.Go(func() { c.join(outside, inside) })
		}
	})
	return c
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// join copies in both directions. It passes on the end of each, as a connection without a proxy
// does: a side that is cut off while it sends would lose what it has not read.
func (c *cutter) join(outside, inside net.Conn) {
	var log atomic.Bool // the last request is for a log or for events
	cut := func() { outside.Close(); inside.Close() }
	defer cut()
	var ways sync.WaitGroup
	ways.Go(func() {
		defer inside.(*net.TCPConn).CloseWrite()
		buf := make([]byte, 64<<10)
		for {
			n, err := outside.Read(buf)
			log.Store(bytes.Contains(buf[:n], []byte("process_logs_streaming")) || bytes.Contains(buf[:n], []byte("/v1/events")))
			if _, werr := inside.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	})
	ways.Go(func() {
		defer outside.(*net.TCPConn).CloseWrite()
		buf := make([]byte, 256)
		for sent := 0; ; {
			n, err := inside.Read(buf)
			if sent += n; !log.Load() {
				sent = 0
			}
			if sent > cutAfter {
				// In place of these bytes: they may end the response, and then the connection may have
				// the next request.
				c.mu.Lock()
				c.cuts++
				c.mu.Unlock()
				cut()
				return
			}
			if _, werr := outside.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	})
	ways.Wait()
}
