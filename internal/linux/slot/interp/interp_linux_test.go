//go:build amd64 || arm64

package interp

import (
	"io"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStart runs a list that clones a child by vfork(2), which writes and ends, and waits for it.
func TestStart(t *testing.T) {
	fd, err := unix.MemfdCreate("list", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, Size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	const text, status, pidWord = 0x20000, 0x30000, 0x30010
	at := func(n int) uint64 { return Base + Entry + uint64(n)*InstrSize }
	list := []Instr{
		{Number: unix.SYS_CLONE, Args: [6]uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, Save: Base + pidWord, OnError: at(5), OnZero: at(4)},
		{Number: unix.SYS_WAIT4, Args: [6]uint64{1<<64 - 1, Base + status, 0, 0}, OnError: at(5)},
		{Number: unix.SYS_WRITE, Args: [6]uint64{Socket, Base + text + 5, 6}, OnError: at(5)},
		{Number: unix.SYS_EXIT_GROUP, Args: [6]uint64{3}},
		{Number: unix.SYS_WRITE, Args: [6]uint64{Socket, Base + text, 5}, Next: at(6)},
		{Number: unix.SYS_EXIT_GROUP, Args: [6]uint64{4}},
		{Number: unix.SYS_EXIT_GROUP, Args: [6]uint64{5}},
	}
	mem, err := unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range list {
		list[i].Put(mem[Entry+i*InstrSize:])
	}
	copy(mem[text:], "childparent")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, pidfd, err := Start(Process{Cgroup: -1, Memory: fd, Socket: pair[1]})
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pidfd)
	unix.Close(pair[1])
	ours := os.NewFile(uintptr(pair[0]), "ours")
	defer ours.Close()
	got, err := io.ReadAll(ours)
	if err != nil || string(got) != "childparent" {
		t.Errorf("got %q, %v", got, err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 3 {
		t.Errorf("status %v, %v", ws.ExitStatus(), err)
	}
	if mem[status+1] != 5 {
		t.Errorf("the child's status is %x", mem[status:status+4])
	}
}
