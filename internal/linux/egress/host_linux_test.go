package egress

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/wire"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func newHost(t *testing.T, o driver.Outbound) *Host {
	t.Helper()
	h, err := New(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// attach attaches one end of a socket pair as the device.
func attach(t *testing.T, h *Host) (l *Link, other int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pair[1]) })
	if l, err = h.Attach(pair[0], nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, pair[1]
}

// gone reports whether no process has the other end of a device open.
func gone(t *testing.T, fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(p, 0); err != nil && err != unix.EINTR {
		t.Fatal(err)
	}
	return p[0].Revents&unix.POLLHUP != 0
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (h *Host) running(old *stack) *stack {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stack == old {
		return nil
	}
	return h.stack
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestRulesInvalid(t *testing.T) {
	for name, o := range map[string]driver.Outbound{
		"network.allow_private":   {AllowPrivate: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 8)}},
		"network.deny":            {Deny: []netip.Prefix{{}}},
		"network.ports_denied":    {DeniedPorts: make([]uint16, wire.MaxRules+1)},
		"network.max_connections": {MaxConnections: wire.MaxConnections + 1},
	} {
		_, err := New(o, nil)
		if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Invalid || e.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(driver.Outbound{Deny: []netip.Prefix{netip.MustParsePrefix("::ffff:1.2.3.4/128")}}, nil); err == nil {
		t.Error("a range of IPv4 in the form of IPv6 is accepted, and would match nothing")
	}
}

// When Close returns, no process has the device open, even if stack processes die meanwhile. No
// resource leaks.
func TestLinksComeAndGo(t *testing.T) {
	o := driver.Outbound{MaxBytes: 1 << 30}
	for i := range 1000 { // more than one frame of rules
		o.DeniedPorts = append(o.DeniedPorts, uint16(i))
		o.Deny = append(o.Deny, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i)}), 24))
	}
	h := newHost(t, o)
	if h.running(nil) != nil {
		t.Error("there is a process before a link")
	}
	stays, _ := attach(t, h)
	first := h.running(nil)
	until(t, "there is a process", func() bool { first = h.running(nil); return first != nil })
	fds := openFDs(t)
	for i := range 60 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		l, err := h.Attach(pair[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		if i%20 == 10 {
			until(t, "a process runs", func() bool {
				s := h.running(nil)
				if s != nil {
					s.kill()
				}
				return s != nil
			})
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		until(t, "nobody has the device", func() bool { return gone(t, pair[1]) })
		unix.Close(pair[1])
	}
	var last *stack
	until(t, "a process runs that has the first link", func() bool {
		last = h.running(first)
		h.mu.Lock()
		defer h.mu.Unlock()
		return last != nil && stays.stack == last
	})
	until(t, "descriptors are given back", func() bool { return openFDs(t) <= fds })
}

// A restriction is in force when Restrict returns, and in a process that takes the place of a dead
// one.
func TestRestrict(t *testing.T) {
	h := newHost(t, driver.Outbound{})
	l, _ := attach(t, h)
	var first *stack
	until(t, "there is a process", func() bool { first = h.running(nil); return first != nil })
	for i := range 3 {
		if err := l.Restrict(sandbar.Egress{Deny: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(10 + i)}), 8)}}); err != nil {
			t.Fatal(err)
		}
	}
	first.kill()
	until(t, "another process runs that has the link", func() bool {
		s := h.running(first)
		h.mu.Lock()
		defer h.mu.Unlock()
		return s != nil && l.stack == s
	})
	if len(l.limits.Deny) != 1 || l.limits.Deny[0].String() != "12.0.0.0/8" {
		t.Errorf("the link has %v", l.limits)
	}
	if err := l.Restrict(sandbar.Egress{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Restrict(sandbar.Egress{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("a closed link: %v", err)
	}
}

// Without links the process ends. The next link starts another.
func TestIdleProcessEnds(t *testing.T) {
	h := newHost(t, driver.Outbound{})
	for range 2 {
		l, _ := attach(t, h)
		var s *stack
		until(t, "there is a process", func() bool { s = h.running(nil); return s != nil })
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		<-s.ended()
		until(t, "it is forgotten", func() bool { return h.running(nil) == nil })
	}
}

// A process that violates the protocol is killed: each message must concern one of its links, and
// be sent once.
func TestProcessBreaksTheProtocol(t *testing.T) {
	h := newHost(t, driver.Outbound{})
	s := &stack{host: h, links: map[uint32]*Link{}}
	l := &Link{host: h, id: 7, reported: map[wire.Event]*stack{}, stack: s}
	s.links[7] = l
	for name, f := range map[string]wire.Frame{
		"a link that it has not":          {Kind: wire.Note, Link: 8, Event: wire.UsedUp},
		"letting go without being asked":  {Kind: wire.Detached, Link: 7},
		"a restriction that nobody wants": {Kind: wire.Restricted, Link: 7},
		"what the daemon says":            {Kind: wire.Attach, Link: 7},
		"ready again":                     {Kind: wire.Ready},
	} {
		if s.handle(f) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	note := wire.Frame{Kind: wire.Note, Link: 7, Event: wire.UsedUp}
	if err := s.handle(note); err != nil {
		t.Error(err)
	}
	if s.handle(note) == nil {
		t.Error("a second time is taken")
	}
	l.detached = make(chan struct{})
	done := wire.Frame{Kind: wire.Detached, Link: 7}
	if err := s.handle(done); err != nil {
		t.Error(err)
	}
	if s.handle(done) == nil {
		t.Error("letting go twice is taken")
	}
}

// A ledger cannot shrink: that would reset the counted bytes.
func TestLedgerKeepsItsSize(t *testing.T) {
	fd, err := newLedger(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, size := range []int64{0, 8192} {
		if unix.Ftruncate(fd, size) == nil {
			t.Errorf("it has %d bytes now", size)
		}
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 4096); err == nil {
		t.Error("it grows")
	}
}

// New fails in a program that does not dispatch to the stack's process.
func TestUndispatched(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), modeVariable+"=undispatched")
	out, err := cmd.Output()
	if err != nil || string(out) != fmt.Sprintln(sandbar.Unsupported) {
		t.Errorf("%q, %v", out, err)
	}
}

// The process ends when its daemon is killed.
func TestKilledDaemon(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), modeVariable+"=daemon"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Error(err)
	}
	process, err := unix.PidfdOpen(pid, 0) // a pidfd never refers to another process
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, "the process ends", func() bool {
		p := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 100)
		return err == nil && n == 1
	})
}
