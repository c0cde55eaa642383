package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

var update = flag.Bool("update", false, "write the golden files anew")

// onPaper returns a driver without an engine, for tests of plans.
func onPaper(o options) *Driver {
	info := system.Info{OSType: "linux", Architecture: "x86_64", CgroupVersion: "2", MemoryLimit: true, SwapLimit: true, CPUCfsPeriod: true, CPUCfsQuota: true, CPUShares: true, PidsLimit: true, NCPU: 4}
	d := &Driver{opt: o, owner: "boot.1/7-8/f00d", info: info, profile: "{}"}
	d.caps = describe(info, endpoint{host: "unix:///x"}, o, true, false)
	return d
}

// The golden file has the complete request for a container. It contains the settings of the
// boundary, so every change of it needs a review.
func TestPlan(t *testing.T) {
	d := onPaper(options{image: DefaultImage})
	s := spec4()
	p, err := d.planFor("sb_0000000000000000000000000a", s, image{id: "sha256:1", env: []string{"PATH=/opt/bin:/usr/bin", "HOME=/root", "LANG=de"}, volumes: []string{"/data", "/tmp/"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(struct{ Container, Env any }{p.container, p.setup.Env}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "plan.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("(-want +got; -update writes it):\n%s", diff)
	}
	if !p.setup.Prebuilt || p.setup.UID != sandboxUID || len(p.setup.Landlock.Rules) == 0 {
		t.Errorf("the agent is told %+v", p.setup)
	}
}

// spec4 returns a Spec with all limits.
func spec4() sandbar.Spec {
	return sandbar.Spec{Env: map[string]string{"B": "2", "A": "1"}, Limits: sandbar.Limits{Memory: 64 << 20, CPUs: 0.5, CPUShares: 512, PIDs: 100, Disk: 1 << 20, Inodes: 800, Files: 64}}
}

func TestResources(t *testing.T) {
	d := onPaper(options{cpus: 2, memory: 96 << 20})
	for name, tt := range map[string]struct {
		limits  sandbar.Limits
		threads int64
		memory  int64
		cpus    int64
		pids    int64 // -1: none
	}{
		"its own":                  {sandbar.Limits{Memory: 64 << 20, CPUs: 0.25, PIDs: 10}, 0, 64 << 20, 250e6, 10 + agentTasks},
		"those of the operator":    {sandbar.Limits{Memory: sandbar.Unlimited, CPUs: sandbar.Unlimited, PIDs: sandbar.Unlimited}, 0, 96 << 20, 2e9, -1},
		"more processors than are": {sandbar.Limits{CPUs: 64}, 0, 96 << 20, 4e9, -1},
		"when the agent is known":  {sandbar.Limits{PIDs: 10}, 14, 96 << 20, 2e9, 24},
	} {
		d.threads.Store(tt.threads)
		r := d.resources(tt.limits)
		pids := int64(-1)
		if r.PidsLimit != nil {
			pids = *r.PidsLimit
		}
		if r.Memory != tt.memory || r.MemorySwap != r.Memory || r.NanoCPUs != tt.cpus || pids != tt.pids {
			t.Errorf("%s: memory %d, with swap %d, processors %d, processes %d", name, r.Memory, r.MemorySwap, r.NanoCPUs, pids)
		}
	}
	// Limits that the engine cannot enforce are not in the request: it would only warn.
	d.caps.Enforced = sandbar.Enforcements{Memory: sandbar.EnforcedNone, CPUs: sandbar.EnforcedNone, CPUShares: sandbar.EnforcedNone, PIDs: sandbar.EnforcedNone}
	if r := d.resources(spec4().Limits); r.Memory != 0 || r.NanoCPUs != 0 || r.CPUShares != 0 || r.PidsLimit != nil {
		t.Errorf("asked of an engine that holds nothing: %+v", r)
	}
}

// The shares of the writable file systems add up to the limit, and never exceed it.
func TestShares(t *testing.T) {
	for _, n := range []int64{1, 7, 8, 9, 63, 64, 4096, 1<<20 + 5, 1 << 62} {
		sum := int64(0)
		for _, p := range parts() {
			sum += share(n, p.eighths)
		}
		if sum > n || n-sum > int64(len(parts())) {
			t.Errorf("the shares of %d are %d", n, sum)
		}
	}
}

func TestDescribe(t *testing.T) {
	all := onPaper(options{}).info
	for name, tt := range map[string]struct {
		change        func(*system.Info)
		local, swaps  bool
		at            endpoint
		network       string
		memory, cpus  sandbar.Enforcement
		counted       bool
		note, noother string
	}{
		"all of it":          {func(*system.Info) {}, true, true, endpoint{}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, true, "maps no users", "cannot limit"},
		"version 1":          {func(i *system.Info) { i.CgroupVersion = "1" }, true, false, endpoint{}, "", sandbar.EnforcedCgroup1, sandbar.EnforcedCgroup1, true, "", ""},
		"an old engine":      {func(i *system.Info) { i.CgroupVersion = "" }, true, false, endpoint{}, "", sandbar.EnforcedCgroup1, sandbar.EnforcedCgroup1, true, "", ""},
		"far away":           {func(*system.Info) {}, false, false, endpoint{}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, false, "", ""},
		"no memory":          {func(i *system.Info) { i.MemoryLimit = false }, true, false, endpoint{}, "", sandbar.EnforcedNone, sandbar.EnforcedCgroup2, false, "cannot limit memory", ""},
		"no quota":           {func(i *system.Info) { i.CPUCfsQuota = false }, true, false, endpoint{}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedNone, true, "cannot limit processors", ""},
		"swap, uncounted":    {func(i *system.Info) { i.SwapLimit = false }, true, true, endpoint{}, "", sandbar.EnforcedNone, sandbar.EnforcedCgroup2, false, "swapaccount=1", ""},
		"no swap, uncounted": {func(i *system.Info) { i.SwapLimit = false }, true, false, endpoint{}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, true, "", "swapaccount"},
		"swap unknown":       {func(i *system.Info) { i.SwapLimit = false }, false, false, endpoint{}, "", sandbar.EnforcedNone, sandbar.EnforcedCgroup2, false, "swapaccount=1", ""},
		"in the clear":       {func(*system.Info) {}, false, false, endpoint{unencrypted: true}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, false, "neither encrypted nor authenticated", ""},
		"users mapped":       {func(i *system.Info) { i.SecurityOptions = []string{"name=seccomp,profile=default", "name=userns"} }, true, false, endpoint{}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, true, "seccomp, userns", "maps no users"},
		"no seccomp":         {func(*system.Info) {}, true, false, endpoint{}, "", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, true, "only the agent filters", ""},
		"a network":          {func(*system.Info) {}, true, false, endpoint{}, "bridge", sandbar.EnforcedCgroup2, sandbar.EnforcedCgroup2, true, "do not apply there", ""},
	} {
		t.Run(name, func(t *testing.T) {
			info := all
			tt.change(&info)
			c := describe(info, tt.at, options{network: tt.network}, tt.local, tt.swaps)
			notes := strings.Join(c.Notes, "\n")
			if c.Enforced.Memory != tt.memory || c.Enforced.CPUs != tt.cpus || c.OOMCounted != tt.counted || c.Outbound != (tt.network != "") {
				t.Errorf("%+v", c)
			}
			if !strings.Contains(notes, tt.note) || tt.noother != "" && strings.Contains(notes, tt.noother) {
				t.Errorf("the notes are\n%s", notes)
			}
			if c.Boundary != driver.BoundaryContainer {
				t.Errorf("the boundary is %v", c.Boundary)
			}
		})
	}
}

func TestLeftOver(t *testing.T) {
	now := time.Now()
	old, young := now.Add(-time.Hour).Unix(), now.Add(-time.Minute).Unix()
	alive := func(name string) bool { return name == "1-1" }
	for name, tt := range map[string]struct {
		owner, here string
		state       container.ContainerState
		created     int64
		want        bool
	}{
		"of a living daemon":               {"boot.1/1-1/f00d", "boot.1", container.StateRunning, old, false},
		"being made by a living daemon":    {"boot.1/1-1/f00d", "boot.1", container.StateCreated, old, false},
		"of a dead daemon":                 {"boot.1/2-2/f00d", "boot.1", container.StateRunning, young, true},
		"of a daemon of another boot":      {"boot.0/2-2/f00d", "boot.1", container.StateRunning, old, false},
		"never started, of another boot":   {"boot.0/2-2/f00d", "boot.1", container.StateCreated, old, true},
		"being made on another host":       {"boot.0/2-2/f00d", "boot.1", container.StateCreated, young, false},
		"of a daemon without a name":       {"?/?/f00d", "boot.1", container.StateRunning, old, false},
		"with a label of another form":     {"boot.1/2-2", "boot.1", container.StateRunning, old, false},
		"seen from nowhere":                {"/2-2/f00d", "", container.StateRunning, old, false},
		"never started, seen from nowhere": {"boot.0/2-2/f00d", "", container.StateCreated, old, true},
	} {
		c := container.Summary{Labels: map[string]string{labelOwner: tt.owner}, State: tt.state, Created: tt.created}
		if got := leftOver(c, tt.here, alive, now); got != tt.want {
			t.Errorf("a container %s is left over: %v", name, got)
		}
	}
}

// piece returns output in the engine's framing.
func piece(stream byte, text string) []byte {
	b := append([]byte{stream, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(len(text)))...)
	return append(b, text...)
}

func TestStream(t *testing.T) {
	for name, tt := range map[string]struct {
		sent       [][]byte
		want, said string
		err        error
	}{
		"nothing":               {nil, "", "", nil},
		"output":                {[][]byte{piece(1, "hello "), piece(1, ""), piece(1, "world")}, "hello world", "", nil},
		"output and errors":     {[][]byte{piece(1, "a"), piece(2, "oh "), piece(1, "b"), piece(2, "no")}, "ab", "oh no", nil},
		"a flood of errors":     {[][]byte{piece(2, strings.Repeat("x", 3*maxStderr)), piece(1, "a")}, "a", strings.Repeat("x", maxStderr), nil},
		"a header cut short":    {[][]byte{piece(1, "a"), {1, 0, 0}}, "a", "", io.ErrUnexpectedEOF},
		"a piece cut short":     {[][]byte{piece(1, "abc")[:9]}, "a", "", nil},
		"an unknown stream":     {[][]byte{piece(3, "a")}, "", "", errStream},
		"a header that is none": {[][]byte{[]byte("HTTP/1.1 200 OK")}, "", "", errStream},
		"errors cut short":      {[][]byte{piece(2, "abc")[:9]}, "", "", io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			sent := bytes.Join(tt.sent, nil)
			for _, size := range []int{1, 7, 4096} {
				s := newStream(nil, bufio.NewReader(bytes.NewReader(sent)))
				var got bytes.Buffer
				_, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{s}, make([]byte, size))
				if got.String() != tt.want || s.Stderr() != tt.said || !errors.Is(err, tt.err) || (tt.err == nil) != (err == nil) {
					t.Errorf("by %d: %q and %q, %v", size, got.String(), s.Stderr(), err)
				}
			}
		})
	}
}

// A deadline in the middle of a header loses none of its bytes.
func TestStreamDeadline(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	s := newStream(ours, bufio.NewReader(ours))
	all := piece(1, "ok")
	go theirs.Write(all[:3])
	var b [2]byte
	if err := s.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read: %v", err)
	}
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go theirs.Write(all[3:])
	if _, err := io.ReadFull(s, b[:]); err != nil || string(b[:]) != "ok" {
		t.Errorf("%q, %v", b, err)
	}
}

// A tree is sent with root as the owner of all files. Links are sent as links and not followed.
func TestWriteTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "usr", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "usr", "bin", "tool"), []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"out": outside, "up": "../../..", "bin": "usr/bin", "gone": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := writeTree(&b, dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(bytes.NewReader(b.Bytes())); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s", h.Name, h.Uid, h.Gid, h.Uname)
		}
		text := h.Name
		if h.Linkname != "" {
			text += " -> " + strings.Replace(h.Linkname, outside, "OUTSIDE", 1)
		}
		got = append(got, text)
	}
	slices.Sort(got)
	want := []string{"./", "bin -> usr/bin", "gone -> nowhere", "out -> OUTSIDE", "up -> ../../..", "usr/", "usr/bin/", "usr/bin/tool"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if bytes.Contains(b.Bytes(), []byte("secret\n")) || bytes.Count(b.Bytes(), []byte("secret")) != strings.Count(outside, "secret") {
		t.Error("what a link leads to was sent")
	}
	if err := writeTree(io.Discard, filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was sent")
	}
}

func TestImportAnswer(t *testing.T) {
	for text, fails := range map[string]bool{
		"": false, `{"status":"sha256:1"}`: false, `{"status":"a"}{"status":"b"}`: false,
		`{"status":"a"}{"error":"no space left","errorDetail":{}}`: true, `<html>`: true,
	} {
		if err := importAnswer(strings.NewReader(text)); (err != nil) != fails {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestStoreReference(t *testing.T) {
	for id, want := range map[string]string{
		"sha256:0123abc": "sandbar/image:sha256-0123abc", "../x y": "sandbar/image:---x-y", strings.Repeat("a", 300): "sandbar/image:" + strings.Repeat("a", 127),
	} {
		if got := storeReference(id); got != want {
			t.Errorf("%q is called %q", id, got)
		}
	}
}
