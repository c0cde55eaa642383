package stdio

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/driver/v86"
	"github.com/sandbar-dev/sandbar/internal/protocol/wiretest"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// machines returns the driver of the mode v86, with an image and other settings.
func machines(t *testing.T, image string, more map[string]string) driver.Driver {
	t.Helper()
	testenv.Need(t, testenv.Linux, testenv.V86)
	cache, err := testenv.V86Cache()
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{v86.OptionImage: image, v86.OptionCache: cache, v86.OptionModules: testenv.V86Modules(), v86.OptionBoot: "20m"}
	for name, value := range more {
		options[name] = value
	}
	d, err := v86.New(driver.Host{Options: options}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// asMode sets the engine's Config as the command stdio does in the mode v86.
func asMode(c *engine.Config) {
	const none = sandbar.Unlimited
	c.Default.PIDs, c.Default.Disk, c.Default.Inodes, c.Default.Files = none, none, none, none
	c.Max.PIDs, c.Max.Disk, c.Max.Inodes, c.Max.Files = none, none, none, none
}

// TestV86Transcripts plays testdata/v86/*.txtar against a PC. The very first run boots it; later
// ones start from its snapshot.
func TestV86Transcripts(t *testing.T) {
	testenv.Need(t, testenv.Once)
	wiretest.Protocol{
		Patience: 5 * time.Minute,
		Serve: func(t *testing.T, _ string) wiretest.Dial {
			d := machines(t, testenv.V86Image(), nil)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			if err := d.(*v86.Driver).Prepare(ctx, 64<<20); err != nil {
				t.Fatal(err)
			}
			s := newServer(t, d, Options{Memory: 64 << 20, MaxFile: 64 << 10, AllowNoSandbox: true}, asMode)
			return func(context.Context) (wiretest.Conn, error) { return serve(t, s), nil }
		},
	}.Run(t, "testdata/v86/*.txtar")
}

// TestV86Silent tests that a machine that sends nothing is not ready, and that no response is made
// up for it.
func TestV86Silent(t *testing.T) {
	image := filepath.Join(t.TempDir(), "disk")
	sector := make([]byte, 1<<20)
	copy(sector, "\xf4\xeb\xfd") // hlt; jmp to it
	copy(sector[510:], "\x55\xaa")
	if err := os.WriteFile(image, sector, 0o600); err != nil {
		t.Fatal(err)
	}
	d := machines(t, image, map[string]string{v86.OptionBoot: "3s", v86.OptionCache: filepath.Join(t.TempDir(), "cache")})
	s := newServer(t, d, Options{Memory: 64 << 20, AllowNoSandbox: true}, asMode)
	for _, a := range ask(t, s, `{"type":"status","id":"a"}`, shellLine("b", "echo hi"), `{"type":"write_file","path":"x","content":"x","id":"c"}`,
		`{"type":"read_file","path":"x","id":"d"}`, `{"type":"reset","id":"e"}`, `{"type":"status","id":"f"}`) {
		text, _ := a["error"].(string)
		if !strings.Contains(text, "nothing came from the console within 3s") {
			t.Errorf("%v is answered with %v", a["id"], a)
		}
		if a["ready"] == true || a["success"] == true || a["exit_code"] != nil {
			t.Errorf("an invented answer: %v", a)
		}
	}
}
