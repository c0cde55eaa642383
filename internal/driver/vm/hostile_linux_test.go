package vm

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// TestHostileGuest checks that a machine whose first program attacks the host gets errors of the
// platform in bounded time, costs the daemon bounded memory, and leaves nothing.
func TestHostileGuest(t *testing.T) {
	options := testOptions(t)
	binary, err := os.ReadFile(testenv.Build(t, "internal/test/hostile"))
	if err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	d, err := New(driver.Host{Options: options, Outbound: &driver.Outbound{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	attacks := map[string]struct {
		codes []sandbar.Code // of starting a program
		later bool           // only in "make test-all"
	}{
		"silent":  {[]sandbar.Code{sandbar.Timeout}, false},
		"garbage": {[]sandbar.Code{sandbar.Gone, sandbar.Unavailable}, false},
		"frames":  {[]sandbar.Code{sandbar.Gone, sandbar.Unavailable}, false},
		"huge":    {[]sandbar.Code{sandbar.Timeout, sandbar.Gone, sandbar.Unavailable}, true},
		"stutter": {[]sandbar.Code{sandbar.Timeout, sandbar.Gone, sandbar.Unavailable}, true},
		"lies":    {nil, false},
		"packets": {[]sandbar.Code{sandbar.Timeout}, false},
		"deaf":    {[]sandbar.Code{sandbar.Timeout}, true},
		"halt":    {[]sandbar.Code{sandbar.Gone, sandbar.Unavailable}, false},
		"panic":   {[]sandbar.Code{sandbar.Gone, sandbar.Unavailable}, true},
		"devices": {nil, false},
	}
	for name, want := range attacks {
		t.Run(name, func(t *testing.T) {
			if want.later && !testenv.Long() {
				return
			}
			before := heap()
			s := spec()
			s.Env = map[string]string{"HOSTILE": name}
			if name == "packets" {
				s.Network = sandbar.NetworkOutbound
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			box, err := d.Create(ctx, sandbar.ID("sb_"+name), s)
			if err != nil {
				// The attack begins before the driver has finished, and the answer of a liar can be
				// a refusal.
				if code := sandbar.CodeOf(err); name == "silent" || name == "packets" || code == sandbar.Internal || code == sandbar.Invalid {
					t.Errorf("Create: %v", err)
				}
			} else {
				bound := 3 * time.Second
				if want.codes != nil && !slices.Contains(want.codes, sandbar.Timeout) {
					bound = 10 * time.Second
				}
				began := time.Now()
				bounded, cancel := context.WithTimeout(ctx, bound)
				defer cancel()
				_, err = box.Start(bounded, sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{})
				if code := sandbar.CodeOf(err); want.codes != nil && !slices.Contains(want.codes, code) {
					t.Errorf("starting a program: %v, want one of %v", err, want.codes)
				}
				if took := time.Since(began); took > bound+7*time.Second {
					t.Errorf("starting a program took %v", took)
				}
				if name == "devices" || name == "packets" {
					time.Sleep(2 * time.Second) // the attack goes on
				}
				began = time.Now()
				if err := box.Destroy(ctx); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("Destroy took %v", took)
				}
			}
			if pids := monitors(t, d); len(pids) != 0 {
				t.Errorf("monitors remain: %v", pids)
			}
			if more := heap() - before; more > 64<<20 {
				t.Errorf("the daemon has %d MiB more memory than before", more>>20)
			}
		})
	}
	if said := log.String(); strings.Contains(said, "the network process has ended") {
		t.Errorf("packets have ended the network process:\n%s", said)
	}
}

// heap returns the size of this process's live heap, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// reachProbe makes the test binary try reaches. A machine's break-out has fewer rights: qemu adds
// its own filter.
const reachProbe = "reach"

// TestMonitorReach starts the test binary in place of qemu, which tries what a broken monitor could
// do.
func TestMonitorReach(t *testing.T) {
	d := newDriver(t, testOptions(t))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := newResources(d, "reach")
	listen, speak, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer listen.Close()
	path := makeFalseQEMU(t, reachProbe)
	err = d.Build(t.Context(), &r.Resources, func() error {
		if err := r.prepare(MinMemory, sandbar.Limits{}); err != nil {
			return err
		}
		return r.Launch(t.Context(), programOf(path, secret, speak))
	})
	speak.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	listen.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := out.ReadFrom(listen); err != nil {
		t.Error(err)
	}
	if err := r.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(reaches("", 0)) {
		t.Errorf("%d answers, want %d: %q", len(lines), len(reaches("", 0)), lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "denied: ") {
			t.Error(line)
		}
	}
}

// TestMonitorDescriptors checks that a monitor has no descriptor but its own files, sockets and
// those of the kernel, and no network device but its loopback.
func TestMonitorDescriptors(t *testing.T) {
	d := newDriver(t, testOptions(t))
	newBox(t, d, "descriptors")
	pid := monitorOf(t, d)
	k, err := d.kind(t.Context(), spec())
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		own := to == "/dev/null" || strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "anon_inode:") ||
			strings.HasPrefix(to, filepath.Join(d.templates.dir, k.key())) || to == k.rootPath || strings.HasPrefix(to, "/memfd:")
		if !own {
			t.Errorf("the monitor has descriptor %s, %s", e.Name(), to)
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte(":")); n != 1 {
		t.Errorf("the monitor has %d network devices:\n%s", n, b)
	}
	b, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var filters int
	for line := range bytes.Lines(b) {
		fmt.Sscanf(string(line), "Seccomp_filters:\t%d", &filters)
	}
	if filters < 2 {
		t.Errorf("the monitor has %d filters: this driver's and qemu's are missing", filters)
	}
}
