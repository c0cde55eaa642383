package wire

// Monitor is the only request of the host to a process of agent.ModeMonitor, in a frame of
// TypeSetup. Its descriptors and those of further frames of TypeSetup without a payload are, in
// order: the program's executable, the program's standard error output, and the Files descriptors
// that the program inherits as MonitorFirstFD, MonitorFirstFD+1, ….
type Monitor struct {
	// Hostname, Root, Mounts, Rlimits, Mitigate and Seccomp are as in Setup. UID and GID are the
	// program's ids inside the user namespace.
	Hostname string
	Root     string
	Mounts   []Mount
	Rlimits  []Rlimit
	Mitigate bool
	UID, GID uint32
	Seccomp  []byte
	// Args and Env are those of the program.
	Args, Env []string
	Files     uint8
}

// MonitorFirstFD is the first descriptor that the program inherits besides the standard streams.
// The one below it is the connection, which ends when the program starts.
const MonitorFirstFD = 4

// MaxMonitorFiles bounds Monitor.Files.
const MaxMonitorFiles = 16

// Append appends the encoding of m.
func (m *Monitor) Append(b []byte) []byte {
	b = appendU32(appendStr(appendStr(b, m.Hostname), m.Root), uint32(len(m.Mounts)))
	for i := range m.Mounts {
		b = m.Mounts[i].append(b)
	}
	b = appendU32(appendU32(append(appendRlimits(b, m.Rlimits), bit(m.Mitigate)), m.UID), m.GID)
	b = append(appendU32(b, uint32(len(m.Seccomp))), m.Seccomp...)
	return append(appendStrs(appendStrs(b, m.Args), m.Env), m.Files)
}

// Decode reads m from a payload. Seccomp shares memory with the payload.
func (m *Monitor) Decode(p []byte) error {
	d := decoder{b: p}
	m.Hostname, m.Root = d.str(), d.str()
	m.Mounts = make([]Mount, d.count(mountMin))
	for i := range m.Mounts {
		m.Mounts[i].decode(&d)
	}
	m.Rlimits = d.rlimits()
	m.Mitigate, m.UID, m.GID = d.truth(), d.u32(), d.u32()
	m.Seccomp = d.bytes()
	m.Args, m.Env, m.Files = d.strs(), d.strs(), d.u8()
	if m.Files > MaxMonitorFiles {
		d.failed = true
	}
	return d.end()
}
