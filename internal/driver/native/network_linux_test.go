package native

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// newReaching opens a driver whose sandboxes can have a network.
func newReaching(t testing.TB, o driver.Outbound) *Driver {
	t.Helper()
	testenv.Need(t, testenv.UserNS, testenv.TUN)
	d, err := New(driver.Host{Outbound: &o}, agentBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if !d.Caps().Outbound {
		t.Fatalf("the driver cannot give a network, although a device can be made: %q", d.Caps().Notes)
	}
	return d
}

// reaching returns a Spec with the network "outbound".
func reaching(d *Driver) sandbar.Spec {
	s := spec(d)
	s.Network, s.AllowDegraded = sandbar.NetworkOutbound, true
	return s
}

// newReacher creates a sandbox with a network, which is destroyed at the test's end.
func newReacher(t testing.TB, d *Driver, s sandbar.Spec) driver.Sandbox {
	t.Helper()
	b, err := d.Create(t.Context(), sandbar.NewID(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// If sandboxes cannot have a network, a Spec with one is refused with the reason. The notes of Caps
// have the same reason.
func TestNetworkRefused(t *testing.T) {
	off := newDriver(t)
	if off.Caps().Outbound || !strings.Contains(strings.Join(off.Caps().Notes, "\n"), "network.outbound") {
		t.Errorf("without rules: %+v", off.Caps())
	}
	binary := agentBinary(t)
	d, err := New(driver.Host{Outbound: &driver.Outbound{Deny: []netip.Prefix{{}}}}, binary)
	if e := sandbar.AsError(err); testenv.TUN.Met() && (err == nil || e.Code != sandbar.Invalid || e.Field != "network.deny") {
		t.Errorf("with rules that make no sense: %v", err)
	}
	if err == nil { // this host does not support networks, so the rules were not checked
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, n := range []sandbar.Network{sandbar.NetworkOutbound, "bridge"} {
		s := spec(off)
		s.Network = n
		_, err := off.Create(t.Context(), sandbar.NewID(), s)
		if e := sandbar.AsError(err); err == nil || e.Code != sandbar.Unsupported || e.Field != "network" || e.Fix == "" {
			t.Errorf("network %q: %v", n, err)
		}
	}
}

// Without descriptor passing, sandboxes can have a network only if the daemon creates the devices.
func TestNetworkStream(t *testing.T) {
	d := newReaching(t, driver.Outbound{})
	d.mode = agent.ModeStream
	b, err := d.Create(t.Context(), sandbar.NewID(), reaching(d))
	if err == nil {
		defer b.Destroy(context.Background())
	}
	if d.net.daemonCreates != d.Caps().Outbound {
		t.Errorf("the daemon makes devices: %v; sandboxes can reach out: %v", d.net.daemonCreates, d.Caps().Outbound)
	}
	if d.net.daemonCreates != (err == nil) || err != nil && sandbar.CodeOf(err) != sandbar.Unsupported {
		t.Errorf("with a stream: %v", err)
	}
	d.mode = agent.ModeSocket
}

// The agent creates the device if every user can open /dev/net/tun, also with a daemon of root.
func TestNetworkByAgent(t *testing.T) {
	testenv.Need(t, testenv.Python)
	d := newReaching(t, driver.Outbound{})
	if d.net.daemonCreates {
		// Another node of the same device, which every user may open.
		d.net.daemonCreates, d.net.device = false, filepath.Join(openDir(t), "tun")
		if err := unix.Mknod(d.net.device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.net.device, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	b := newReacher(t, d, reaching(d))
	got := run(t, b, `
import socket
print(*sorted(l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]))
try: socket.create_connection(("10.0.0.1", 80))
except ConnectionRefusedError: print("answered")`)
	if got != "eth0 lo\nanswered\n" {
		t.Errorf("got %q", got)
	}
}

// openDir returns a directory with mode 0755.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sandbar-native-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A program sees one address and one route of each IP version and one name server, and no
// information about the host's network.
func TestNetworkInside(t *testing.T) {
	testenv.Need(t, testenv.Python)
	b := newReacher(t, newReaching(t, driver.Outbound{}), reaching(newDriver(t)))
	got := run(t, b, `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("198.51.100.1", 9)); print(s.getsockname()[0]); s.close()
print(open("/etc/resolv.conf").read().strip(), "|", [l.strip() for l in open("/etc/nsswitch.conf") if l.startswith("hosts")])
print([l.split()[1:3] for l in open("/proc/net/route").readlines()[1:]])
try: print([l.split()[0] for l in open("/proc/net/if_inet6") if l.split()[-1] == "eth0"])
except OSError: print("no IPv6")
import os
print(os.listdir("/proc/self/fd")[:3] == ["0", "1", "2"], len(os.listdir("/proc/self/fd")) <= 4)`)
	want := "192.0.0.2\nnameserver 192.0.0.1 | ['hosts: files dns']\n[['00000000', '010000C0'], ['000000C0', '00000000']]\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	rest := strings.Split(strings.TrimPrefix(got, want), "\n")
	if rest[0] != "no IPv6" && rest[0] != "['fd5ba4d17c3200000000000000000002']" {
		t.Errorf("IPv6 addresses: %s", rest[0])
	}
	if rest[1] != "True True" {
		t.Errorf("a program has more descriptors than its own: %s", rest[1])
	}
}

// A sandbox with an idle network costs the daemon no thread and a few kilobytes.
func TestNetworkIdleCost(t *testing.T) {
	d := newReaching(t, driver.Outbound{})
	const many = 20
	newReacher(t, d, reaching(d)) // creates the resources that all sandboxes share
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	for range many {
		newReacher(t, d, reaching(d))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// A sandbox without a network has two: one reads from the agent.
	if n := runtime.NumGoroutine() - goroutines; n > 3*many {
		t.Errorf("%d sandboxes that do nothing have %d goroutines", many, n)
	}
	held := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)
	t.Logf("%d bytes of heap and stacks per idle sandbox", held/many)
	if held/many > 256<<10 {
		t.Errorf("%d bytes per idle sandbox", held/many)
	}
}

// BenchmarkCreate measures creating and removing a sandbox, with and without a network.
func BenchmarkCreate(b *testing.B) {
	d := newReaching(b, driver.Outbound{})
	for _, n := range []sandbar.Network{sandbar.NetworkNone, sandbar.NetworkOutbound} {
		b.Run(string(n), func(b *testing.B) {
			s := reaching(d)
			s.Network = n
			for b.Loop() {
				box, err := d.Create(b.Context(), sandbar.NewID(), s)
				if err == nil {
					err = box.Destroy(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOutbound measures the rate at which a program sends and receives data.
func BenchmarkOutbound(b *testing.B) {
	testenv.Need(b, testenv.Python)
	addr := worldAddress(b)
	l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	d := newReaching(b, driver.Outbound{AllowPrivate: []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}})
	for name, program := range map[string]string{
		"out-and-back": `
import socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); n = int(sys.argv[3]) << 20; block = bytes(1 << 20)
def send():
    for i in range(n >> 20): s.sendall(block)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = 0; buf = bytearray(1 << 20)
while got < n: got += s.recv_into(buf)
print(got)`,
		"connections": `
import socket, sys
for i in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b"x"); s.recv(1); s.close()
print(int(sys.argv[3]) << 20)`,
	} {
		b.Run(name, func(b *testing.B) {
			box, err := d.Create(b.Context(), sandbar.NewID(), reaching(d))
			if err != nil {
				b.Fatal(err)
			}
			defer box.Destroy(context.Background())
			b.ResetTimer()
			var out bytes.Buffer
			p, err := box.Start(b.Context(), sandbar.Cmd{Args: []string{"/usr/bin/python3", "-c", program, addr.String(),
				fmt.Sprint(l.Addr().(*net.TCPAddr).Port), fmt.Sprint(b.N)}}, driver.Stdio{Stdout: &out, Stderr: &out})
			if err == nil {
				_, err = p.Wait()
			}
			if err != nil || out.String() != fmt.Sprintln(b.N<<20) {
				b.Fatal(err, out.String())
			}
			if name == "out-and-back" {
				b.SetBytes(1 << 20)
			}
		})
	}
}

// worldAddress returns an address of this machine that is not a loopback address.
func worldAddress(t testing.TB) netip.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ip, _ := netip.AddrFromSlice(n.IP)
			if ip = ip.Unmap(); ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				return ip
			}
		}
	}
	t.Fatal("this machine has no address besides loopback")
	return netip.Addr{}
}
