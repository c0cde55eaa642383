package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Program is the name of qemu's executable.
const Program = "qemu-system-x86_64"

// The oldest version that works: it can save to a file and take KVM's device as a descriptor.
const minMajor, minMinor = 8, 2

// versionTimeout bounds qemu --version.
const versionTimeout = 10 * time.Second

// Find finds qemu. path is a path or a name in PATH; "" means Program. Unsupported: there is none,
// or it is too old. The accelerator is TCG.
func Find(path string) (*QEMU, error) {
	if path == "" {
		path = Program
	}
	lack := func(what string, err error) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "qemu", Message: what, Err: err,
			Fix: fmt.Sprintf("install qemu %d.%d or later (Debian 12: apt-get install -t bookworm-backports qemu-system-x86; Debian 13: apt-get install qemu-system-x86), or set the driver's option qemu to its path", minMajor, minMinor)}
	}
	found, err := exec.LookPath(path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err == nil {
		found, err = filepath.EvalSymlinks(found)
	}
	if err != nil {
		return nil, lack("there is no qemu: "+sandbar.Quote(path, 200)+" is not a program", err)
	}
	out, err := askVersion(found)
	if err != nil {
		return nil, lack(sandbar.Quote(found, 200)+" does not tell its version", err)
	}
	version, major, minor, ok := parseVersion(out)
	if !ok {
		return nil, lack(sandbar.Quote(found, 200)+" is not qemu", nil)
	}
	if major < minMajor || major == minMajor && minor < minMinor {
		return nil, lack(fmt.Sprintf("%s is version %d.%d; the driver needs %d.%d", sandbar.Quote(found, 200), major, minor, minMajor, minMinor), nil)
	}
	return &QEMU{path: found, version: version, accelerator: TCG}, nil
}

// parseVersion parses the output of qemu --version. version is its first line.
func parseVersion(out string) (version string, major, minor int, ok bool) {
	version, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
	number, found := strings.CutPrefix(version, "QEMU emulator version ")
	if !found {
		return "", 0, 0, false
	}
	n, err := fmt.Sscanf(number, "%d.%d", &major, &minor)
	return version, major, minor, n == 2 && err == nil
}

// askVersion runs path --version. It kills remaining processes of its process group.
func askVersion(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	var out head
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Stdout = &out
	cmd.WaitDelay = versionTimeout / 10
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	_ = end() // ESRCH if no process is left
	return out.String(), err
}

// head keeps the first bytes that are written.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), 4<<10-min(h.Len(), 4<<10))])
	return len(p), nil
}
