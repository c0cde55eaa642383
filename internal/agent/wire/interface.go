package wire

// Interface is the sandbox's network interface besides the loopback: a TUN device (IFF_TUN,
// IFF_NO_PI) whose packets the host reads and writes.
type Interface struct {
	// Name of the interface; "" for none.
	Name string
	// Device is the host's device node from which the agent creates the interface; the Reply to
	// Setup carries the descriptor. "" if the host has already created the interface in the
	// sandbox's network namespace.
	Device string
	MTU    uint32
	// Addrs are the addresses of the interface. The agent skips an address whose family the kernel
	// lacks, except for the first, which must succeed.
	Addrs []Addr
}

// Addr is one address of an Interface. IP and Gateway have 4 or 16 bytes.
type Addr struct {
	IP      []byte
	Bits    uint8  // prefix length of the address's network
	Gateway []byte // next hop of the default route
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
