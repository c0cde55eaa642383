package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/server/config"
)

// newTestRecorder is a Recorder for a directory, with a constant time.
func newTestRecorder(t *testing.T, store, dir string) *Recorder {
	t.Helper()
	code := config.Code{Store: store, Artifacts: dir}
	r, err := NewRecorder(RecorderOptions{Dir: code.Executions(), FailedOnly: store == config.StoreOnError, MaxOutput: 5,
		Caps:    func(name string) driver.Caps { return driver.Caps{Name: name, Boundary: driver.BoundaryWasm} },
		Version: "1.2.3",
		Failed:  func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if r != nil {
		r.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678000, time.FixedZone("", 3600)) }
	}
	return r
}

// keep records one execution.
func keep(r *Recorder, j sandbar.Job, output string, result sandbar.Result, err error) {
	sink, done := r.Record(j, engine.Discard)
	if done == nil {
		return
	}
	sink.Started()
	sink.Output(sandbar.Chunk{Stream: sandbar.Stdout, Data: []byte(output)})
	done(result, err)
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

var (
	fine   = sandbar.Result{Outcome: sandbar.Exited, Duration: time.Second}
	failed = sandbar.Result{Outcome: sandbar.Exited, ExitCode: 1}
)

// The setting decides which executions are recorded.
func TestStorePolicy(t *testing.T) {
	job := sandbar.Job{Language: "python", Code: "x"}
	for _, c := range []struct {
		store string
		want  []int // files after a success, a failure, an error, and a command without code
	}{
		{config.StoreNever, nil},
		{config.StoreOnError, []int{0, 1, 2, 2}},
		{config.StoreAlways, []int{1, 2, 3, 3}},
	} {
		t.Run(c.store, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			r := newTestRecorder(t, c.store, dir)
			if c.want == nil {
				if _, err := os.Stat(dir); r != nil || !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%v, and there is a directory: %v", r, err)
				}
				return
			}
			for i, one := range []func(){
				func() { keep(r, job, "", fine, nil) },
				func() { keep(r, job, "", failed, nil) },
				func() { keep(r, job, "", sandbar.Result{}, sandbar.Errorf(sandbar.Exhausted, "full")) },
				func() { keep(r, sandbar.Job{Cmd: sandbar.Cmd{Args: []string{"ls"}}}, "", failed, nil) },
			} {
				one()
				if got := len(files(t, filepath.Join(dir, "executions"))); got != c.want[i] {
					t.Errorf("after %d executions there are %d files, want %d", i+1, got, c.want[i])
				}
			}
		})
	}
}

// A file has the code and the result, and neither environment nor input. Only its owner can read
// it. Two executions at the same time have two files.
func TestArtifact(t *testing.T) {
	dir := t.TempDir()
	r := newTestRecorder(t, config.StoreAlways, dir)
	job := sandbar.Job{Language: "python", Code: "print('<&>')", Stdin: strings.NewReader("secret input"),
		Spec: sandbar.Spec{Driver: "wasm", Env: map[string]string{"TOKEN": "secret"}, Limits: sandbar.Limits{Timeout: time.Second}}}
	keep(r, job, "123456789", failed, nil)
	keep(r, job, "", sandbar.Result{}, sandbar.Errorf(sandbar.Exhausted, "full"))
	dir = filepath.Join(dir, "executions")
	got := files(t, dir)
	slices.Sort(got)
	name := regexp.MustCompile(`^20260102T020405\.000678Z_[0-9a-f]{12}(-1)?\.json$`)
	if len(got) != 2 || !name.MatchString(got[0]) || !name.MatchString(got[1]) {
		t.Fatalf("%v", got)
	}
	var all []map[string]any
	for _, f := range got {
		path := filepath.Join(dir, f)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), "<&>") {
			t.Errorf("%s holds %s, %v", f, text, err)
		}
		var m map[string]any
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if all[0]["error"] != nil {
		all[0], all[1] = all[1], all[0]
	}
	want := []map[string]any{
		{"timestamp": "2026-01-02T02:04:05.000678Z", "language": "python", "code": "print('<&>')", "error": nil,
			"result": map[string]any{"stdout": "12345\n... (output truncated)\n", "stderr": "", "exit_code": 1.0, "duration": 0.0, "truncated": true, "timed_out": false,
				"meta": map[string]any{"runtime": "wasm", "boundary": "wasm", "language": "python", "versions": map[string]any{"sandbar": "1.2.3"}, "outcome": "exited", "truncated": true, "timed_out": false,
					"resource_limits": map[string]any{"timeout_sec": 1.0, "max_output_kb": 5.0 / 1024}}}},
		{"timestamp": "2026-01-02T02:04:05.000678Z", "language": "python", "code": "print('<&>')", "result": nil,
			"error": map[string]any{"code": "exhausted", "message": "full"}},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
}

// An unusable directory is an error before anything runs. A directory that disappears later is
// reported, and the result does not change.
func TestArtifactsCannotBe(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := NewRecorder(RecorderOptions{Dir: filepath.Join(file, "executions")})
	if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Denied || e.Field != "code.artifacts" {
		t.Errorf("%v", err)
	}
	r := newTestRecorder(t, config.StoreAlways, filepath.Join(dir, "gone"))
	var told []error
	r.o.Failed = func(err error) { told = append(told, err) }
	if err := os.RemoveAll(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	keep(r, sandbar.Job{Language: "python"}, "", fine, nil)
	if len(told) != 1 || sandbar.CodeOf(told[0]) != sandbar.Unavailable {
		t.Errorf("%v", told)
	}
}
