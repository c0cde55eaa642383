package native

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/egress"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
	"github.com/sandbar-dev/sandbar/internal/linux/spawn"
)

// A sandbox that may reach out has a TUN device, whose other end is a stack in
// a process of the daemon's (package egress). A device is made in a network namespace by a
// thread in it, with a right over it and with the permission to open
// /dev/net/tun. Two can have all three: the agent, before it gives its rights
// up; and, where the daemon is root and the sandbox's root is not, a thread of
// the daemon that enters the namespace for as long as it takes.

// network is the driver's part in sandboxes that reach out.
type network struct {
	host   *egress.Host // nil: none may
	enter  bool         // the daemon makes the devices
	device string       // with what they are made
	note   string       // why none may
}

// tunDevice is with what TUN devices are made.
const tunDevice = "/dev/net/tun"

// openNetwork prepares for the operator's rules, as far as this host lets it.
func openNetwork(h driver.Host, ids spawn.IDs) (network, error) {
	if h.Outbound == nil {
		return network{note: "sandboxes cannot reach out: the setting network.outbound is off"}, nil
	}
	enter, err := deviceMaker(ids)
	if err != nil {
		return network{note: "sandboxes cannot reach out: " + err.Error()}, nil
	}
	host, err := egress.New(*h.Outbound, h.Logger)
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		return network{note: err.Error()}, nil
	}
	return network{host: host, enter: enter, device: tunDevice}, err
}

func (n *network) close() error {
	if n.host == nil {
		return nil
	}
	return n.host.Close()
}

// deviceMaker finds out who can make devices: the daemon, else the agent.
func deviceMaker(ids spawn.IDs) (daemon bool, err error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("%s: %w (as root: modprobe tun; chmod 0666 %s)", tunDevice, err, tunDevice)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch {
	case !ids.Ranged:
		return false, nil // the agent is the daemon's user
	case canEnter():
		return true, nil
	case unix.Fstat(fd, &st) == nil && st.Mode&0o6 == 0o6:
		return false, nil
	}
	return false, fmt.Errorf("%s is root's only, and the daemon may not enter network namespaces (as root: chmod 0666 %s, or give it CAP_SYS_ADMIN)", tunDevice, tunDevice)
}

// canEnter reports whether this process may enter a network namespace.
func canEnter() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// canReachOut reports whether sandboxes of this driver may.
func (d *Driver) canReachOut() bool {
	return d.net.host != nil && (d.net.enter || d.mode == agent.ModeSocket)
}

// refuseNetwork refuses a network that sandboxes cannot have here.
func (d *Driver) refuseNetwork(n sandbar.Network) error {
	e := &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Fix: "use the network \"none\""}
	switch {
	case n == "" || n == sandbar.NetworkNone:
		return nil
	case n != sandbar.NetworkOutbound:
		e.Message = "network " + sandbar.Quote(string(n), 40) + " is not possible; the native driver has \"none\" and \"outbound\""
	case d.net.host == nil:
		e.Message = d.net.note
	case !d.canReachOut():
		e.Message = "sandboxes cannot reach out: their device is passed as a descriptor, which this connection to the agent cannot carry"
	default:
		return nil
	}
	return e
}

// interfaceName is that of a sandbox's device.
const interfaceName = "eth0"

// reachOut adds to the plan what a sandbox needs to reach out.
func (d *Driver) reachOut(setup *wire.Setup) {
	addr := func(a netip.Prefix, gateway netip.Addr) wire.Addr {
		return wire.Addr{IP: a.Addr().AsSlice(), Bits: uint8(a.Bits()), Gateway: gateway.AsSlice()}
	}
	setup.Interface = wire.Interface{Name: interfaceName, MTU: egress.MTU, Addrs: []wire.Addr{
		addr(egress.Address, egress.Gateway), addr(egress.Address6, egress.Gateway6)}}
	if !d.net.enter {
		setup.Interface.Device = d.net.device
	}
	setup.Mounts = policy.WithNameserver(setup.Mounts, egress.Gateway.String())
}

// attach connects the sandbox's device to a stack. fd becomes the link's.
func (r *resources) attach(fd int) (err error) {
	r.link, err = r.d.net.host.Attach(fd)
	return err
}

// makeDevice makes the device of a sandbox's plan in the network namespace of
// its agent, if that is the daemon's to do, and connects it.
func (r *resources) makeDevice(i *wire.Interface) error {
	if i.Name == "" || i.Device != "" {
		return nil
	}
	fd, err := deviceIn(r.Init, r.d.net.device, i.Name)
	if err != nil {
		return sandbar.Errorf(sandbar.Internal, "making the sandbox's network device: %w", err)
	}
	return r.attach(fd)
}

// deviceIn makes a TUN device in the network namespace of an agent.
func deviceIn(agentOf *spawn.Child, device, name string) (fd int, err error) {
	ns, err := agentOf.Open("ns/net")
	if err != nil {
		return -1, err
	}
	defer unix.Close(ns)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fd, err = inNamespace(ns, func() (int, error) { return agent.OpenTun(device, name) })
	}()
	<-done
	return fd, err
}

// inNamespace calls f in a network namespace. The goroutine's thread is in no
// other until f returns; if it cannot return it ends with the goroutine, which
// must be one of its own for that.
func inNamespace(ns int, f func() (int, error)) (int, error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return -1, err
	}
	defer own.Close()
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return -1, err
	}
	fd, err := f()
	if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return fd, err
}
