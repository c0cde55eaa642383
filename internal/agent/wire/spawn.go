package wire

// Spawn asks a spawner for an agent, as PID 1 of fresh namespaces. The first
// descriptor becomes the agent's connection; a second, if there is one, is the
// version 2 control group that the agent is born in.
type Spawn struct {
	// Mode is the agent's, one of those of package agent.
	Mode string
	// UIDs and GIDs are the maps of its user namespace.
	UIDs, GIDs IDMap
	// Ranged: it becomes 0:0 of its namespace. Otherwise it keeps the one id
	// it has, and as ambient ones the capabilities below Caps.
	Ranged bool
	Caps   uint8
	// Owner, if not 0, is the user who owns its user namespace, rather than the
	// spawner's own.
	Owner uint32
	// Enter and Leave are files of version 1 control groups, to which the
	// thread that forks writes before and after.
	Enter, Leave []string
}

// IDMap is the one line of a user namespace's map.
type IDMap struct{ Inside, Outside, Size uint32 }

// Append appends the encoding of m.
func (m *Spawn) Append(b []byte) []byte {
	b = appendStr(b, m.Mode)
	for _, x := range [...]IDMap{m.UIDs, m.GIDs} {
		b = appendU32(appendU32(appendU32(b, x.Inside), x.Outside), x.Size)
	}
	b = append(b, bit(m.Ranged), m.Caps)
	b = appendU32(b, m.Owner)
	return appendStrs(appendStrs(b, m.Enter), m.Leave)
}

// Decode reads m from a payload.
func (m *Spawn) Decode(p []byte) error {
	d := decoder{b: p}
	m.Mode = d.str()
	for _, x := range [...]*IDMap{&m.UIDs, &m.GIDs} {
		x.Inside, x.Outside, x.Size = d.u32(), d.u32(), d.u32()
	}
	m.Ranged, m.Caps = d.truth(), d.u8()
	m.Owner = d.u32()
	m.Enter, m.Leave = d.strs(), d.strs()
	return d.end()
}

// Spawned is Data of the Reply to a Spawn that succeeded.
type Spawned struct {
	// PID is the agent's process id as the spawner sees it. It is the
	// agent's for as long as the pidfd that came along names a live process.
	PID uint32
}

// Append appends the encoding of m.
func (m *Spawned) Append(b []byte) []byte { return appendU32(b, m.PID) }

// Decode reads m from a payload.
func (m *Spawned) Decode(p []byte) error {
	d := decoder{b: p}
	m.PID = d.u32()
	return d.end()
}
