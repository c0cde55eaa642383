package native

import (
	"fmt"
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

// A sandbox with the network "outbound" has a TUN device, whose packets a TCP/IP stack in a child
// process of the daemon forwards (package egress). To create a device in a network namespace, a
// thread must be in that namespace, have CAP_NET_ADMIN in it, and be able to open /dev/net/tun.
// That is either the agent, before it drops its capabilities, or a thread of the daemon that
// briefly enters the namespace; see daemonCreatesDevices.

// network is the driver's network access.
type network struct {
	host          *egress.Host // nil: no sandbox can have a network
	daemonCreates bool         // the daemon creates the devices, otherwise the agents
	device        string       // path of the TUN driver's file
	note          string       // why host is nil
}

// tunDevice is the path of the TUN driver's file.
const tunDevice = "/dev/net/tun"

// openNetwork opens the network access with the operator's rules. If this host does not support it,
// the result has a note and no host.
func openNetwork(h driver.Host, ids spawn.IDs) (network, error) {
	if h.Outbound == nil {
		return network{note: "sandboxes cannot have a network: the setting network.outbound is off"}, nil
	}
	byDaemon, err := daemonCreatesDevices(ids)
	if err != nil {
		return network{note: "sandboxes cannot have a network: " + err.Error()}, nil
	}
	host, err := egress.New(*h.Outbound, h.Logger)
	if sandbar.CodeOf(err) == sandbar.Unsupported {
		return network{note: err.Error()}, nil
	}
	return network{host: host, daemonCreates: byDaemon, device: tunDevice}, err
}

func (n *network) close() error {
	if n.host == nil {
		return nil
	}
	return n.host.Close()
}

// daemonCreatesDevices reports whether the daemon creates the devices: it does if sandboxes have
// their own ids and it may enter their namespaces. Otherwise the agents do. The error says why
// neither can.
func daemonCreatesDevices(ids spawn.IDs) (daemon bool, err error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("%s: %w (as root: modprobe tun; chmod 0666 %s)", tunDevice, err, tunDevice)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch {
	case !ids.Ranged:
		return false, nil // the agent has the daemon's uid
	case canEnter():
		return true, nil
	case unix.Fstat(fd, &st) == nil && st.Mode&0o6 == 0o6:
		return false, nil
	}
	return false, fmt.Errorf("only root can open %s, and the daemon may not enter network namespaces (as root: chmod 0666 %s, or give it CAP_SYS_ADMIN)", tunDevice, tunDevice)
}

// canEnter reports whether this process may enter network namespaces: setns(2) needs CAP_SYS_ADMIN.
func canEnter() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// noNetwork returns why sandboxes of this driver cannot have the network "outbound", "" if they
// can.
func (d *Driver) noNetwork() string {
	if d.net.host != nil && !d.net.daemonCreates && d.mode != agent.ModeSocket {
		return "sandboxes cannot have a network: their device is passed as a descriptor, which this connection to the agent cannot carry"
	}
	return d.net.note
}

// addNetwork adds the network device and the name server to a plan.
func (d *Driver) addNetwork(setup *wire.Setup) {
	setup.Interface = egress.Interface()
	if !d.net.daemonCreates {
		setup.Interface.Device = d.net.device
	}
	setup.Mounts = policy.WithNameserver(setup.Mounts, egress.Gateway.String())
}

// attach connects the sandbox's TUN device to the TCP/IP stack. It takes ownership of fd.
func (r *resources) attach(fd int) (err error) {
	r.link, err = r.d.net.host.Attach(fd, r.egress)
	return err
}

// restrict returns the function that replaces what the sandbox may reach; nil without a network.
func (r *resources) restrict(s sandbar.Spec) func(sandbar.Egress) error {
	if s.Network != sandbar.NetworkOutbound {
		return nil
	}
	return func(e sandbar.Egress) error { return r.link.Restrict(e) }
}

// makeDevice creates and attaches the device i in the network namespace of the sandbox's agent. It
// does nothing if i is empty or the agent creates the device.
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

// deviceIn creates a TUN device in the network namespace of an agent.
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

// inNamespace calls f on a thread in the network namespace ns. It must be called on a goroutine of
// its own: if the thread cannot leave the namespace, it stays locked and ends with the goroutine.
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
