package vm

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/driver/vm/guest"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
)

// A machine has no network card. With the network "outbound" the agent makes a TUN device and
// copies its packets to the machine's second port. The process of the TCP/IP stacks (package
// egress) has the other end, a socket; neither the daemon nor the monitor parses a packet.

// openNetwork opens the network access with the operator's rules.
func (d *Driver) openNetwork() (err error) {
	if d.host.Outbound == nil {
		d.noNetwork = "sandboxes cannot have a network: the setting network.outbound is off"
		return nil
	}
	if k, err := guest.OpenKernel(d.cache); err == nil && !slices.ContainsFunc(k.Modules, isTun) {
		d.noNetwork = "sandboxes cannot have a network: the guest kernel has no module tun"
		return nil
	}
	d.network, err = egress.New(*d.host.Outbound, d.Log)
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		d.network, d.noNetwork, err = nil, err.Error(), nil
	}
	return err
}

// isTun reports whether a path is that of the module of TUN devices.
func isTun(path string) bool { return filepath.Base(path) == "tun.ko" }

func (d *Driver) closeNetwork() error {
	if d.network == nil {
		return nil
	}
	return d.network.Close()
}

// attachNetwork connects the machine to the TCP/IP stack within limits, and returns the monitor's
// end.
func (r *resources) attachNetwork(limits *sandbar.Egress) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Exhausted, "making a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "network")
	if r.link, err = r.d.network.Attach(fds[0], limits); err != nil {
		theirs.Close()
		return nil, err
	}
	return theirs, nil
}
