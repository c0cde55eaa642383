package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudoterminal. Text that is written to the second end appears at the first.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// Transfers print their progress to terminals only. Control characters in file names are quoted.
func TestProgress(t *testing.T) {
	p, id := served(t, []string{"SANDBAR_DRIVER=local", "SANDBAR_ALLOW_DEGRADED=true"})
	file := filepath.Join(p.dir, "f")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"upload", id, file, "name"}, {"download", id, "name", file}, {"upload", id, file, "evil\x1b[31m"}} {
		master, slave := terminal(t)
		shown := transcript{changed: make(chan struct{})}
		go func() {
			b := make([]byte, 4096)
			for {
				n, err := master.Read(b)
				shown.Write(b[:n])
				if err != nil {
					return
				}
			}
		}()
		cmd := p.command(args...)
		cmd.Stderr = slave
		if err := cmd.Run(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		shown.await(t, `(name|evil\S+)\s+\d+% .*B/s`)
		if text, _ := shown.look(); strings.Contains(text, "evil\x1b") {
			t.Errorf("%q writes to the terminal: %q", args, text)
		}
	}
}
