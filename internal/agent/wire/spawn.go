package wire

// Spawn asks a spawner for an agent as PID 1 of new namespaces. The first descriptor becomes the
// agent's connection. The optional second one is a version 2 cgroup in which the agent starts
// (CLONE_INTO_CGROUP, clone(2)).
type Spawn struct {
	// Mode is the agent's mode, one of the Mode constants of package agent.
	Mode string
	// UIDs and GIDs are the id maps of the agent's user namespace (user_namespaces(7)).
	UIDs, GIDs IDMap
	// Ranged says that the maps cover a range of ids, and that the agent becomes 0:0 of its
	// namespace. Otherwise the agent keeps its one id, and its ambient capabilities are those below
	// Caps.
	Ranged bool
	Caps   uint8
	// Owner, if not 0, is the user that owns the agent's user namespace. 0 means the spawner's own
	// user.
	Owner uint32
	// Enter and Leave are the cgroup.procs files of version 1 cgroups. The forking thread writes
	// itself to Enter before the fork and to Leave after it.
	Enter, Leave []string
}

// IDMap is one line of a uid_map or gid_map.
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

// Spawned is Data of the Reply to a successful Spawn.
type Spawned struct {
	// PID is the agent's process id in the spawner's PID namespace. It is valid while the pidfd of
	// the Reply refers to a live process.
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
