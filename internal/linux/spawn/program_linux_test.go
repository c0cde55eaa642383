package spawn

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The agent's program is not a file of the host and cannot be changed. It can be executed after
// every change of its mode that the seals allow.
func TestProgramIsSealed(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for _, ranged := range []bool{false, true} {
		for what, binary := range map[string][]byte{"running": nil, "given": []byte("#!/bin/true\n")} {
			p, err := OpenProgram(binary, IDs{Ranged: ranged})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			fd := int(p.f.Fd())
			name := what + " binary, ranged " + map[bool]string{false: "no", true: "yes"}[ranged]
			checkSeals(t, name, fd)
			before, err := p.f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if self, err := os.Stat("/proc/self/exe"); err != nil || os.SameFile(self, before) {
				t.Errorf("%s: the program is the file that runs: %v", name, err)
			}
			if !ranged && before.Mode().Perm() != 0o111 {
				t.Errorf("%s: programs share its owner, and its mode is %v", name, before.Mode())
			}
			if err := unix.Fchmod(fd, 0); err != unix.EPERM {
				t.Errorf("%s: mode 0: %v", name, err)
			}
			for _, mode := range []uint32{0o111, 0o777} {
				if err := unix.Fchmod(fd, mode); err != nil {
					t.Errorf("%s: mode %o: %v", name, mode, err)
				}
			}
		}
	}
}

func checkSeals(t *testing.T, name string, fd int) {
	t.Helper()
	const want = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_EXEC
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || got&want != want {
		t.Errorf("%s: seals %#x, want %#x: %v", name, got, want, err)
	}
}

// A container runtime copies itself for each container, unless its program has exactly the seals of
// such a copy.
func TestSealed(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	f, err := Sealed("runc", []byte("content"), unix.MFD_EXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const want = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || got != want {
		t.Errorf("seals %#x, want %#x: %v", got, want, err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("its content can be changed")
	}
}
