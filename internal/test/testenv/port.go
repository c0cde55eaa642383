package testenv

import (
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// FreeAddress returns a loopback address on which no process listens. Its port is below the range
// of ephemeral ports (net.ipv4.ip_local_port_range, ip(7)), so the kernel gives it to no outgoing
// connection and to no listener on port 0. No two calls return the same port, also of several
// processes: until this one ends, it listens on an abstract socket (unix(7)) of the port's name.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const lowest, ports = 10_000, 20_000
	for range ports {
		port := strconv.Itoa(lowest + (os.Getpid()*97+int(lastPort.Add(1)))%ports)
		mine, err := net.Listen("unix", "@sandbar-test-port-"+port)
		if err != nil {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", port)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			takenPorts.Store(port, mine)
			return address
		}
		mine.Close()
	}
	t.Fatalf("something listens on each port from %d to %d", lowest, lowest+ports-1)
	return ""
}

// takenPorts has the abstract sockets of FreeAddress by port.
var takenPorts sync.Map

// lastPort counts the calls of FreeAddress.
var lastPort atomic.Uint32
