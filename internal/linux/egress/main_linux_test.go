package egress

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/egress/netstack"
)

// modeVariable, if set, makes the test binary a daemon.
const modeVariable = "EGRESS_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(modeVariable) == "undispatched" {
		_, err := New(driver.Outbound{}, nil)
		fmt.Println(sandbar.CodeOf(err))
		return
	}
	netstack.Main()
	if os.Getenv(modeVariable) == "daemon" {
		playDaemon()
	}
	os.Exit(m.Run())
}

// playDaemon starts a process and a link, prints their pid, and waits to be killed.
func playDaemon() {
	h, err := New(driver.Outbound{}, nil)
	if err == nil {
		var pair [2]int
		if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err == nil {
			_, err = h.Attach(pair[0], nil)
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for pid := 0; pid == 0; time.Sleep(time.Millisecond) { // Attach does not wait for the links to be handed over
		h.mu.Lock()
		if h.stack != nil {
			pid = h.stack.process.PID()
			fmt.Println(pid)
		}
		h.mu.Unlock()
	}
	select {}
}
