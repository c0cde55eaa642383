package netuse

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// socket makes a socket and returns the cookie of its network namespace.
func socket(t *testing.T, family, kind, protocol int) uint64 {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		t.Fatal(err)
	}
	return cookie
}

func TestUsed(t *testing.T) {
	testenv.Need(t, testenv.Root, testenv.Freezer) // which needs version 2, too
	groups, err := cgroup.Detect("netuse")
	if err != nil {
		t.Fatal(err)
	}
	defer groups.Close()
	w, err := New(groups.Unified())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cookie := socket(t, unix.AF_UNIX, unix.SOCK_STREAM, 0)
	for name, c := range map[string]struct {
		family, kind, protocol int
		used                   bool
	}{
		"UNIX":    {unix.AF_UNIX, unix.SOCK_STREAM, 0, false},
		"netlink": {unix.AF_NETLINK, unix.SOCK_RAW, 0, false},
		"TCP":     {unix.AF_INET, unix.SOCK_STREAM, 0, true},
		"UDP":     {unix.AF_INET, unix.SOCK_DGRAM, 0, true},
		"TCP 6":   {unix.AF_INET6, unix.SOCK_STREAM, 0, true},
		"raw":     {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, true},
	} {
		if !w.Used(cookie) {
			t.Errorf("%s: a namespace that is not watched counts as unused", name)
		}
		if err := w.Begin(cookie); err != nil {
			t.Fatal(err)
		}
		if w.Used(cookie) {
			t.Errorf("%s: used at the beginning", name)
		}
		socket(t, c.family, c.kind, c.protocol)
		if w.Used(cookie) != c.used {
			t.Errorf("%s: used: %v", name, w.Used(cookie))
		}
		w.End(cookie)
	}
}

func TestNoGroup(t *testing.T) {
	for _, group := range []string{"", "/nothing", t.TempDir()} {
		if w, err := New(group); sandbar.CodeOf(err) != sandbar.Unsupported || w != nil {
			t.Errorf("%q: %v", group, err)
		}
	}
}
