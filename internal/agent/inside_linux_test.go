package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func TestProgramEnv(t *testing.T) {
	s := &wire.Setup{Env: []string{"HOME=/home/user"}}
	own := []string{"PATH=/opt/bin", "HOME=/root", "GOGC=25", "KUBERNETES_PORT=1", "LANG=de", "A=b=c"}
	if got := programEnv(s, own); !slices.Equal(got, s.Env) {
		t.Errorf("without the agent's variables: %q", got)
	}
	s.OwnEnv = wire.OwnEnv{Use: true, Below: []string{"PATH=/bin", "TZ=UTC"}, Omit: []string{"GOGC", "KUBERNETES_*", "LAN"}}
	if got, want := programEnv(s, own), []string{"PATH=/opt/bin", "TZ=UTC", "HOME=/home/user", "LANG=de", "A=b=c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRenameBySteps(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, name := range []string{"file", "there"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "directory", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		from, to string
		want     error
	}{
		{"file", "there", unix.EEXIST}, {"file", "directory", unix.EEXIST}, {"directory", "there", unix.EEXIST}, {"nothing", "new", unix.ENOENT},
		{"directory", "directory/below/new", unix.EINVAL}, {"file", "new", nil}, {"directory", "other", nil},
	} {
		if err := renameBySteps(fd, x.from, fd, x.to); err != x.want {
			t.Errorf("%s to %s: %v, want %v", x.from, x.to, err, x.want)
		}
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"new", "other", "there"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, %v", left, err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "other", "below")); err != nil || len(entries) != 0 {
		t.Errorf("below: %v, %v", entries, err)
	}
}
