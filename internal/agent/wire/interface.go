package wire

// Interface is the network interface that a sandbox has besides its loopback: a
// TUN device (IFF_TUN, IFF_NO_PI), at whose other end is the host.
type Interface struct {
	// Name of the interface; "" for none.
	Name string
	// Device is the host's file with which the agent makes the device, whose
	// descriptor comes with the Reply to Setup. "" if the host has made the
	// device in the sandbox's network namespace already.
	Device string
	MTU    uint32
	// Addrs are its addresses. Those of a family that the kernel does not have
	// are left out, but for the first.
	Addrs []Addr
}

// Addr is an address of an Interface, of 4 or 16 bytes.
type Addr struct {
	IP      []byte
	Bits    uint8  // length of the prefix of its network
	Gateway []byte // where all else goes
}

func (i *Interface) append(b []byte) []byte {
	b = appendU32(appendStr(appendStr(b, i.Name), i.Device), i.MTU)
	b = appendU32(b, uint32(len(i.Addrs)))
	for _, a := range i.Addrs {
		b = append(appendU32(b, uint32(len(a.IP))), a.IP...)
		b = append(b, a.Bits)
		b = append(appendU32(b, uint32(len(a.Gateway))), a.Gateway...)
	}
	return b
}

func (i *Interface) decode(d *decoder) {
	i.Name, i.Device, i.MTU = d.str(), d.str(), d.u32()
	n := d.count(4 + 1 + 4)
	if n == 0 {
		return
	}
	i.Addrs = make([]Addr, n)
	for k := range i.Addrs {
		i.Addrs[k] = Addr{IP: d.bytes(), Bits: d.u8(), Gateway: d.bytes()}
	}
}
