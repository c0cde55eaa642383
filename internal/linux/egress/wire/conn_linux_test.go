package wire

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// newPair returns both ends.
func newPair(t *testing.T) (daemon, stack *Conn) {
	t.Helper()
	daemon, file, err := Pair()
	if err == nil {
		stack, err = NewConn(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Close()
		stack.Close()
	})
	return daemon, stack
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Only Attach frames carry descriptors, two each. Descriptors of a refused frame are closed.
func TestDescriptors(t *testing.T) {
	daemon, stack := newPair(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	if err := daemon.Send(Frame{Kind: Attach, Link: 1}, fd, fd); err != nil {
		t.Fatal(err)
	}
	f, fds, err := stack.Receive()
	if err != nil || f.Link != 1 || len(fds) != 2 {
		t.Fatalf("%+v, %v, %v", f, fds, err)
	}
	for _, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a descriptor would be inherited: %x, %v", flags, err)
		}
		unix.Close(fd)
	}
	before := openFDs(t)
	for name, send := range map[string]func() error{
		"none":            func() error { return daemon.Send(Frame{Kind: Attach}) },
		"one":             func() error { return daemon.Send(Frame{Kind: Attach}, fd) },
		"three":           func() error { return daemon.Send(Frame{Kind: Attach}, fd, fd, fd) },
		"with other kind": func() error { return daemon.Send(Frame{Kind: Detach}, fd, fd) },
		"no frame":        func() error { return daemon.Send(Frame{}, fd, fd) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		if f, fds, err := stack.Receive(); err == nil {
			t.Errorf("%s: %+v, %v", name, f, fds)
		}
	}
	if err := stack.Send(Frame{Kind: Ready}, fd); err != nil {
		t.Fatal(err)
	}
	if f, err := daemon.ReceiveBare(); err == nil {
		t.Errorf("the daemon takes %+v with a descriptor", f)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors were open, %d are", before, after)
	}
}
