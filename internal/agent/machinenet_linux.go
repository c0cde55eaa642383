package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// The descriptors that package boot gives the agent: the connection and, if the machine's kernel
// has TUN devices, the port for packets and the opened TUN driver without a device. They are above
// all that the Go runtime opens: package boot must not replace the descriptors of its own runtime,
// which uses them until the execve.
const (
	MachineSocketFD  = 59
	MachineNetworkFD = 60
	MachineTunFD     = 61
)

// tunDriver is the device number of the TUN driver, misc 200
// (Documentation/admin-guide/devices.txt).
var tunDriver = unix.Mkdev(10, 200)

// machineNetwork is the outbound network of a machine.
type machineNetwork struct {
	available bool // the machine has the descriptors
	up        bool
}

// openMachineNetwork finds the descriptors of package boot.
func openMachineNetwork() machineNetwork {
	var st unix.Stat_t
	err := unix.Fstat(MachineTunFD, &st)
	return machineNetwork{available: err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == tunDriver}
}

// start creates the interface of a plan, and copies packets between it and the port until the end
// of the machine. It does nothing if the plan has no interface.
func (n *machineNetwork) start(i *wire.Interface) (step string, err error) {
	switch {
	case i.Name == "":
		return "", nil
	case !n.available || n.up:
		return "find a free TUN device", unix.ENODEV
	}
	req, err := unix.NewIfreq(i.Name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(MachineTunFD, unix.TUNSETIFF, req)
	}
	if err != nil {
		return "make the network device " + i.Name, err
	}
	if err := configure(i); err != nil {
		return "configure the network device " + i.Name, err
	}
	if err := writeNameserver(i); err != nil {
		return "write /etc/resolv.conf", err
	}
	n.up = true
	go copyFromDevice()
	go copyToDevice()
	return "", nil
}

// writeNameserver makes the gateway of the first address the name server of programs.
func writeNameserver(i *wire.Interface) error {
	if len(i.Addrs) == 0 || len(i.Addrs[0].Gateway) != 4 {
		return unix.EINVAL
	}
	etc, err := openDir("/etc")
	if err != nil {
		return err
	}
	defer unix.Close(etc)
	text := "nameserver " + dottedQuad(i.Addrs[0].Gateway) + "\n"
	return replaceFile(etc, "resolv.conf", func([]byte) []byte { return []byte(text) })
}

// dottedQuad formats an IPv4 address.
func dottedQuad(ip []byte) string {
	var out []byte
	for i, b := range ip {
		if i > 0 {
			out = append(out, '.')
		}
		if b >= 100 {
			out = append(out, '0'+b/100)
		}
		if b >= 10 {
			out = append(out, '0'+b/10%10)
		}
		out = append(out, '0'+b%10)
	}
	return string(out)
}

// copyFromDevice copies the packets that programs send to the port.
func copyFromDevice() {
	buf := make([]byte, wire.PacketHead+wire.MaxPacket)
	for {
		n, err := unix.Read(MachineTunFD, buf[wire.PacketHead:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		wire.AppendPacketHead(buf[:0], n)
		if writePort(buf[:wire.PacketHead+n]) != nil {
			return
		}
	}
}

// copyToDevice copies the packets that the host sends to the device.
func copyToDevice() {
	var r wire.PacketReader
	for {
		n, err := unix.Read(MachineNetworkFD, r.Space())
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN || err == nil && n == 0: // nothing to read, or nobody at the host's end
			awaitHost(unix.POLLIN)
			continue
		case err != nil:
			return
		}
		r.Read(n)
		for p := r.Next(); p != nil; p = r.Next() {
			_, _ = unix.Write(MachineTunFD, p) // the kernel drops what it does not accept
		}
	}
}

// writePort writes all of b to the port.
func writePort(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(MachineNetworkFD, b)
		switch err {
		case nil:
			b = b[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			awaitHost(unix.POLLOUT)
		default:
			return err
		}
	}
	return nil
}

// awaitHost waits until the port is ready. While nobody is at the host's end poll(2) returns at
// once, so it then pauses.
func awaitHost(events int16) {
	fds := []unix.PollFd{{Fd: MachineNetworkFD, Events: events}}
	if _, err := unix.Poll(fds, -1); err == nil && fds[0].Revents&events == 0 {
		time.Sleep(10 * time.Millisecond)
	}
}
