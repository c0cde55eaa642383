package v86

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/cpio"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/wasm/v86/worker"
)

func TestMain(m *testing.M) {
	if worker.IsWorker() {
		worker.Main()
	}
	goleak.VerifyTestMain(m)
}

// patience bounds a test that hangs. A boot takes half a minute on an idle machine.
const patience = 20 * time.Minute

// testMemory is the protocol's default memory size.
const testMemory = 64 << 20

func testOptions(t *testing.T) map[string]string {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.V86)
	cache, err := testenv.V86Cache()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{OptionImage: testenv.V86Image(), OptionCache: cache, OptionModules: testenv.V86Modules(), OptionBoot: patience.String()}
}

func newDriver(t *testing.T, options map[string]string) *Driver {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.V86)
	d, err := New(driver.Host{Options: options, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func testSpec() sandbar.Spec {
	return sandbar.Spec{Limits: sandbar.Limits{Memory: testMemory}, Env: map[string]string{"A": "sandbox's", "B": "sandbox's"}}
}

func newBox(t *testing.T) driver.Sandbox {
	t.Helper()
	d := newDriver(t, testOptions(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.Prepare(ctx, testMemory); err != nil {
		t.Fatal(err)
	}
	box, err := d.Create(ctx, "box", testSpec())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

type outcome struct {
	sandbar.Result
	stdout, stderr string
}

func run(t *testing.T, box driver.Sandbox, script string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sh", "-c", script}}, driver.Stdio{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("starting %q: %v", script, err)
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatalf("waiting for %q: %v", script, err)
	}
	return outcome{r, out.String(), errs.String()}
}

// plainImage returns an image without Sandbar's program: its process 1 is a shell.
func plainImage(t *testing.T) string {
	t.Helper()
	parts := filepath.Join(testenv.Cache(), "v86", "parts")
	kernel, err := os.ReadFile(filepath.Join(parts, "vmlinuz"))
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := os.ReadFile(filepath.Join(parts, "busybox"))
	if err != nil {
		t.Fatal(err)
	}
	var files bytes.Buffer
	a := cpio.NewWriter(&files)
	for _, dir := range []string{"bin", "dev", "proc", "tmp"} {
		a.Dir(dir)
	}
	a.Device("dev/console", 5, 1)
	a.File("bin/busybox", busybox)
	a.File("init", []byte("#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\n/bin/busybox mount -t proc proc /proc\n"+
		"/bin/busybox --install -s /bin\nexport PATH=/bin\nexec setsid sh -c 'exec sh -i </dev/ttyS0 >/dev/ttyS0 2>&1'\n"))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"vmlinuz": kernel, "initrd": files.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
