package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

var renewal = wire.Renew{Hostname: "new", MachineID: "0123456789abcdef0123456789abcdef"}

func TestRenameHost(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1\tlocalhost old\n::1\tlocalhost\n": "127.0.0.1\tlocalhost new\n::1\tlocalhost\n",
		"127.0.0.1 old older old.example # old\n":    "127.0.0.1 new older old.example # old\n",
		"10.0.0.1 other":    "10.0.0.1 other\n127.0.1.1\tnew\n",
		"# new\n":           "# new\n127.0.1.1\tnew\n",
		"127.0.1.1 new\r\n": "127.0.1.1 new\r\n",
		"":                  "127.0.1.1\tnew\n",
	} {
		if got := string(renameHost([]byte(text), "old", "new")); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// A program that ran before may have put anything in place of the files.
func TestRenewNames(t *testing.T) {
	testenv.Need(t, testenv.Root) // the agent of a machine is root, and gives its files to root
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v, want %q", path, got, err, want)
		}
	}
	renew := func() {
		t.Helper()
		if step, err := renewNames(dir, "old", &renewal); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, renewing)); !os.IsNotExist(err) {
			t.Errorf("the temporary file is left: %v", err)
		}
	}
	hosts, hostname, id := filepath.Join(dir, "hosts"), filepath.Join(dir, "hostname"), filepath.Join(dir, "machine-id")

	renew() // nothing exists
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("files were created: %v, %v", all, err)
	}

	write(outside, "outside")
	write(hosts, "127.0.0.1 localhost old\n")
	if err := os.Symlink(outside, id); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, renewing)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(hostname, 0o644); err != nil {
		t.Fatal(err)
	}
	renew()
	expect(outside, "outside")
	expect(id, renewal.MachineID+"\n")
	expect(hostname, "new\n")
	expect(hosts, "127.0.0.1 localhost new\n")
	info, err := os.Lstat(hosts)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("the mode of hosts is %v, %v", info.Mode(), err)
	}

	renew() // the same names again: the files stay
	if again, err := os.Lstat(hosts); err != nil || !os.SameFile(info, again) {
		t.Errorf("hosts was replaced: %v", err)
	}

	if err := os.Remove(hosts); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(hosts, 0o755); err != nil {
		t.Fatal(err)
	}
	renew() // a directory stays

	moved := dir + ".moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(moved, dir); err != nil {
		t.Fatal(err)
	}
	other := renewal
	other.Hostname = "other"
	if step, err := renewNames(dir, "new", &other); err != nil {
		t.Errorf("%s: %v", step, err)
	}
	expect(filepath.Join(moved, "hostname"), "new\n")
}
