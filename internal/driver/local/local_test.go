package local

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDriver opens a driver, which is closed at the test's end.
func newDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := New(driver.Host{RuntimeDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.(*Driver).Close(); err != nil {
			t.Error(err)
		}
	})
	return d.(*Driver)
}

// newBox creates a sandbox without limits.
func newBox(t *testing.T, d *Driver) *sandbox {
	t.Helper()
	b, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	return b.(*sandbox)
}

func TestFactory(t *testing.T) {
	f := Factory()
	if f.Name != Name || f.Summary == "" || f.New == nil || len(f.Options) != 0 {
		t.Errorf("%+v", f)
	}
	_, err := f.New(driver.Host{RuntimeDir: t.TempDir(), Options: map[string]string{"color": "red"}})
	if e := sandbar.AsError(err); e == nil || e.Code != sandbar.Invalid || e.Field != "color" {
		t.Errorf("an option that is not known: %v", err)
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	d := newDriver(t)
	held := d.Caps().Enforced.Files != sandbar.EnforcedNone
	for name, tc := range map[string]struct {
		spec  sandbar.Spec
		field string // "" when it is accepted
		code  sandbar.Code
	}{
		"nothing":              {sandbar.Spec{}, "", ""},
		"the host's image":     {sandbar.Spec{Image: "host", Network: sandbar.NetworkNone}, "", ""},
		"another image":        {sandbar.Spec{Image: "alpine"}, "image", sandbar.Unsupported},
		"another network":      {sandbar.Spec{Network: "open"}, "network", sandbar.Unsupported},
		"memory":               {sandbar.Spec{Limits: sandbar.Limits{Memory: 1}}, "memory", sandbar.Unsupported},
		"processors":           {sandbar.Spec{Limits: sandbar.Limits{CPUs: 0.1}}, "cpus", sandbar.Unsupported},
		"shares":               {sandbar.Spec{Limits: sandbar.Limits{CPUShares: 2}}, "cpu_shares", sandbar.Unsupported},
		"processes":            {sandbar.Spec{Limits: sandbar.Limits{PIDs: 9}}, "pids", sandbar.Unsupported},
		"disk":                 {sandbar.Spec{Limits: sandbar.Limits{Disk: 9}}, "disk", sandbar.Unsupported},
		"inodes":               {sandbar.Spec{Limits: sandbar.Limits{Inodes: 9}}, "inodes", sandbar.Unsupported},
		"too many files":       {sandbar.Spec{Limits: sandbar.Limits{Files: 1 << 40}}, "files", sandbar.Unsupported},
		"unlimited":            {sandbar.Spec{Limits: sandbar.Limits{Memory: -1, CPUs: -1, CPUShares: -1, PIDs: -1, Disk: -1, Inodes: -1, Files: -1}}, "", ""},
		"degraded":             {sandbar.Spec{AllowDegraded: true, Limits: sandbar.Limits{Memory: 1, CPUs: 1, CPUShares: 1, PIDs: 1, Disk: 1, Inodes: 1, Files: 1 << 40}}, "", ""},
		"a variable with a =":  {sandbar.Spec{Env: map[string]string{"a=b": ""}}, "env", sandbar.Invalid},
		"degraded, bad image":  {sandbar.Spec{AllowDegraded: true, Image: "x"}, "image", sandbar.Unsupported},
		"the engine's own say": {sandbar.Spec{Limits: sandbar.Limits{Timeout: 1, Output: 1}}, "", ""},
	} {
		b, err := d.Create(t.Context(), sandbar.NewID(), tc.spec)
		if tc.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := b.Destroy(t.Context()); err != nil {
				t.Errorf("%s: Destroy: %v", name, err)
			}
			continue
		}
		if e := sandbar.AsError(err); e == nil || e.Code != tc.code || e.Field != tc.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{Limits: sandbar.Limits{Files: 64}}); (err == nil) != held {
		t.Errorf("64 open files, held: %v; %v", held, err)
	} else if err == nil {
		b.Destroy(t.Context())
	}
	if _, err := d.Create(t.Context(), "sb_../../etc", sandbar.Spec{}); sandbar.CodeOf(err) != sandbar.Invalid {
		t.Errorf("an id that is a path: %v", err)
	}
}

func TestCapsSayWhatIsMissing(t *testing.T) {
	for _, sets := range []bool{true, false} {
		c := capsOf(sets)
		if c.Boundary != driver.BoundaryNone || c.PrivateFiles || c.PrivateNetwork || c.PrivateProcesses || c.OOMCounted {
			t.Errorf("claims something: %+v", c)
		}
		notes := strings.Join(c.Notes, " ")
		if !strings.Contains(notes, "no boundary") || strings.Contains(notes, "open files") == sets {
			t.Errorf("notes: %s", notes)
		}
	}
}

// Close destroys the remaining sandboxes. Afterwards Create fails.
func TestClose(t *testing.T) {
	dir := t.TempDir()
	made, err := New(driver.Host{RuntimeDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	d := made.(*Driver)
	b := newBox(t, d)
	p, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"sleep", "60"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if res, err := p.Wait(); err != nil || res.Outcome != sandbar.Signaled {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := d.Create(t.Context(), sandbar.NewID(), sandbar.Spec{}); sandbar.CodeOf(err) != sandbar.Unavailable {
		t.Errorf("Create after Close: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, Name))
	if err != nil || len(left) != 0 {
		t.Errorf("after Close there is %v, %v", left, err)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment(map[string]string{"A": "1", "B": "1"}, map[string]string{"B": "2", "C": "2"}, nil, map[string]string{"C": "3"})
	if want := map[string]string{"A": "1", "B": "2", "C": "3"}; !maps.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	for _, tc := range []struct {
		outer string
		env   map[string]string
		want  []string
	}{
		{"", map[string]string{"B": "2", "A": "1"}, []string{"A=1", "B=2", tagVariable + "=me"}},
		{"", map[string]string{tagVariable: "forged"}, []string{tagVariable + "=me"}},
		{"one.two", nil, []string{tagVariable + "=one.two me"}},
	} {
		t.Setenv(tagVariable, tc.outer)
		if got := envList(tc.env, "me"); !slices.Equal(got, tc.want) {
			t.Errorf("%v in %q: %q; want %q", tc.env, tc.outer, got, tc.want)
		}
	}
}

func TestInheritedEnvironment(t *testing.T) {
	t.Setenv("SANDBAR_TOKEN", "secret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("PATH", "/somewhere")
	got := inheritedEnv()
	if got["LANG"] != "C.UTF-8" || got["PATH"] != "/somewhere" {
		t.Errorf("%v", got)
	}
	for name := range got {
		if !slices.Contains(inherited, name) && !slices.Contains(inheritedBySystem, name) {
			t.Errorf("%s is inherited", name)
		}
	}
	t.Setenv("PATH", "")
	if got := inheritedEnv()["PATH"]; got != defaultPath {
		t.Errorf("without a PATH it is %q", got)
	}
}

func TestResolve(t *testing.T) {
	if filepath.Separator != '/' {
		return // the table is written with slashes
	}
	s := &sandbox{home: "/run/x/home"}
	for path, want := range map[string]string{
		"":                 "/run/x/home",
		"a":                "/run/x/home/a",
		"a/../b":           "/run/x/home/a/../b", // where a is a link this is not b
		"./a":              "/run/x/home/./a",
		"/home/user":       "/run/x/home",
		"/home/user/a":     "/run/x/home/a",
		"/home/user/":      "/run/x/home/",
		"/home/username":   "/home/username",
		"/home/user2/a":    "/home/user2/a",
		"/etc/passwd":      "/etc/passwd",
		"/":                "/",
		"home/user":        "/run/x/home/home/user",
		"//home/user/file": "//home/user/file",
	} {
		if got := s.resolve(path); got != want {
			t.Errorf("%q is %q; want %q", path, got, want)
		}
	}
}

func TestSplitLast(t *testing.T) {
	if filepath.Separator != '/' {
		return
	}
	for path, want := range map[string][2]string{
		"/a/b":     {"/a/", "b"},
		"/a/b/":    {"/a/", "b"},
		"/a/b///":  {"/a/", "b"},
		"/a":       {"/", "a"},
		"/":        {"/", ""},
		"/a/../b":  {"/a/../", "b"},
		"/a/b/..":  {"/a/b/", ".."},
		"/a//b":    {"/a//", "b"},
		"relative": {"", "relative"},
	} {
		if dir, name := splitLast(path); dir != want[0] || name != want[1] {
			t.Errorf("%q is %q and %q; want %q", path, dir, name, want)
		}
	}
}

func TestStartErrorCodes(t *testing.T) {
	for err, want := range map[error]sandbar.Code{
		os.ErrNotExist:          sandbar.NotFound,
		os.ErrPermission:        sandbar.Denied,
		errors.New("no reason"): sandbar.Internal,
	} {
		if got := sandbar.CodeOf(startError("x", err)); got != want {
			t.Errorf("%v has code %q; want %q", err, got, want)
		}
	}
}

func TestContextError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if err := contextError(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	if got := sandbar.CodeOf(contextError(ctx)); got != sandbar.Canceled {
		t.Errorf("cancelled: %q", got)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 0)
	defer cancel()
	if got := sandbar.CodeOf(contextError(ctx)); got != sandbar.Timeout {
		t.Errorf("too late: %q", got)
	}
}
