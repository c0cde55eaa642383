package wire

// Renew gives a whole machine what no other machine of the same snapshot has. The host sends it
// before any other request to a machine that was restored or resumed. The agent applies everything
// before it answers with a Reply, and handles no later request before that.
type Renew struct {
	// Seed is random. The agent adds it to the kernel's random numbers and makes them use it at once.
	Seed [SeedSize]byte
	// Time is the wall clock, in nanoseconds since 1970.
	Time int64
	// Hostname becomes the host name: 1 to 64 letters, digits, '-' and '.'.
	Hostname string
	// MachineID becomes the content of /etc/machine-id: 32 hexadecimal digits in lower case.
	MachineID string
	// Template: the machine is about to be saved, and only programs of the host's choice run in it.
	// The Renew after the restore then overwrites the files of this one.
	Template bool
}

// SeedSize is the length of Renew.Seed in bytes.
const SeedSize = 64

// maxHostname is the kernel's bound of a host name, in bytes (__NEW_UTS_LEN).
const maxHostname = 64

// Valid reports whether Hostname and MachineID have the form that an agent accepts.
func (m *Renew) Valid() bool {
	if len(m.Hostname) == 0 || len(m.Hostname) > maxHostname || len(m.MachineID) != 32 {
		return false
	}
	for _, c := range []byte(m.Hostname) {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '-' && c != '.' {
			return false
		}
	}
	for _, c := range []byte(m.MachineID) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Append appends the encoding of m.
func (m *Renew) Append(b []byte) []byte {
	b = appendU64(append(b, m.Seed[:]...), uint64(m.Time))
	return append(appendStr(appendStr(b, m.Hostname), m.MachineID), bit(m.Template))
}

// Decode reads m from a payload. A Renew that is not Valid is an error.
func (m *Renew) Decode(p []byte) error {
	d := decoder{b: p}
	copy(m.Seed[:], d.take(SeedSize))
	m.Time = int64(d.u64())
	m.Hostname, m.MachineID, m.Template = d.str(), d.str(), d.truth()
	d.failed = d.failed || !m.Valid()
	return d.end()
}
