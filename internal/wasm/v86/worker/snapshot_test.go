package worker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/wasm/v86/machine"
)

func encoded(t *testing.T, s *machine.Snapshot, memory int64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeSnapshot(&b, s, memory); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A snapshot is restored unchanged, also after discard.
func TestSnapshotFile(t *testing.T) {
	s := machine.ImportState(bytes.Repeat([]byte("state"), 10_000))
	s.Clock = 12345 * time.Millisecond
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, encoded(t, s, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	got, memory, discard, err := openSnapshot(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if memory != 64<<20 || got.Clock != s.Clock || got.Console != s.Console || got.Channel != s.Channel || !bytes.Equal(got.State, s.State) {
			t.Errorf("%d bytes of memory, %v, %d bytes of state", memory, got.Clock, len(got.State))
		}
		discard()
	}
}

// A truncated or foreign file is refused.
func TestSnapshotDamaged(t *testing.T) {
	good := encoded(t, machine.ImportState([]byte("state")), 64<<20)
	change := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] = b
		return c
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "half a header": good[:headerSize/2], "no state": good[:headerSize], "a state cut": good[:len(good)-1],
		"more than a state": append(bytes.Clone(good), 0), "another magic": change(0, 'x'),
		"a description too long": change(len(snapshotMagic)+2, 0xff), "a description that is none": change(len(snapshotMagic)+4, 'x'),
	} {
		path := filepath.Join(t.TempDir(), "snapshot")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := openSnapshot(path); !errors.Is(err, errSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The arguments of a worker survive encoding and parsing.
func TestJobArgs(t *testing.T) {
	j := Job{Mode: ModeBoot, Modules: "/m", Cache: "/c", Path: "/p", Memory: 1 << 26, Limit: time.Minute}
	got, err := parse(j.Args())
	if err != nil || got != j {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parse([]string{Name, ModeRun, "", "", "", "x", "0"}); err == nil {
		t.Error("a size of memory that is no number passes")
	}
}
