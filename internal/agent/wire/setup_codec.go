package wire

// Append appends the encoding of s.
func (s *Setup) Append(b []byte) []byte {
	b = s.Interface.append(appendStr(appendStrs(appendStr(append(b, bit(s.Prebuilt)), s.Hostname), s.Remove), s.Root))
	b = appendU32(b, uint32(len(s.Mounts)))
	for i := range s.Mounts {
		b = s.Mounts[i].append(b)
	}
	b = appendU32(b, uint32(len(s.Sysctls)))
	for _, x := range s.Sysctls {
		b = appendStr(appendStr(b, x.Name), x.Value)
	}
	b = appendRlimits(b, s.Rlimits)
	b = appendU32(appendU32(appendU32(append(b, s.Nice, bit(s.Mitigate)), s.UID), s.GID), s.TagResource)
	b = appendU64(appendU64(b, s.Landlock.HandledFS), s.Landlock.Scoped)
	b = appendU32(b, uint32(len(s.Landlock.Rules)))
	for _, r := range s.Landlock.Rules {
		b = appendU64(appendStr(b, r.Path), r.Access)
	}
	b = append(appendU32(b, uint32(len(s.Seccomp))), s.Seccomp...)
	b = append(appendU32(b, uint32(len(s.ProgramSeccomp))), s.ProgramSeccomp...)
	b = appendStrs(appendU64(b, s.Capabilities), s.Env)
	b = appendStrs(appendStrs(append(b, bit(s.OwnEnv.Use)), s.OwnEnv.Below), s.OwnEnv.Omit)
	b = appendStr(b, s.Dir)
	return append(appendStrs(appendU64(appendU64(b, uint64(s.Watchdog)), uint64(s.PIDs)), s.WatchDisks), bit(s.WatchKernel))
}

// Decode reads s from a payload. Seccomp and ProgramSeccomp share memory with the payload.
func (s *Setup) Decode(p []byte) error {
	d := decoder{b: p}
	s.Prebuilt, s.Hostname, s.Remove, s.Root = d.truth(), d.str(), d.strs(), d.str()
	s.Interface.decode(&d)
	s.Mounts = make([]Mount, d.count(mountMin))
	for i := range s.Mounts {
		s.Mounts[i].decode(&d)
	}
	s.Sysctls = make([]Sysctl, d.count(8))
	for i := range s.Sysctls {
		s.Sysctls[i] = Sysctl{Name: d.str(), Value: d.str()}
	}
	s.Rlimits = d.rlimits()
	s.Nice, s.Mitigate = d.u8(), d.truth()
	s.UID, s.GID, s.TagResource = d.u32(), d.u32(), d.u32()
	s.Landlock.HandledFS, s.Landlock.Scoped = d.u64(), d.u64()
	s.Landlock.Rules = make([]LandlockRule, d.count(12))
	for i := range s.Landlock.Rules {
		s.Landlock.Rules[i] = LandlockRule{Path: d.str(), Access: d.u64()}
	}
	s.Seccomp, s.ProgramSeccomp = d.bytes(), d.bytes()
	s.Capabilities, s.Env = d.u64(), d.strs()
	s.OwnEnv = OwnEnv{Use: d.truth(), Below: d.strs(), Omit: d.strs()}
	s.Dir = d.str()
	s.Watchdog, s.PIDs = int64(d.u64()), int64(d.u64())
	s.WatchDisks, s.WatchKernel = d.strs(), d.truth()
	return d.end()
}

// Append appends the encoding of l.
func (l *Launch) Append(b []byte) []byte {
	b = appendStr(appendStrs(appendStrs(b, l.Args), l.Env), l.Dir)
	b = appendU32(appendU32(append(b, l.Namespaces), l.UID), l.GID)
	b = appendRlimits(b, l.Rlimits)
	b = appendStr(append(appendU32(b, uint32(len(l.Seccomp))), l.Seccomp...), l.Score)
	return append(b, bit(l.Mitigate))
}

// Decode reads l from a payload. Seccomp shares memory with the payload. A Launch without Args is
// an error.
func (l *Launch) Decode(p []byte) error {
	d := decoder{b: p}
	l.Args, l.Env, l.Dir = d.strs(), d.strs(), d.str()
	l.Namespaces, l.UID, l.GID = d.u8(), d.u32(), d.u32()
	l.Rlimits = d.rlimits()
	l.Seccomp, l.Score, l.Mitigate = d.bytes(), d.str(), d.truth()
	d.failed = d.failed || len(l.Args) == 0
	return d.end()
}

func appendRlimits(b []byte, limits []Rlimit) []byte {
	b = appendU32(b, uint32(len(limits)))
	for _, r := range limits {
		b = appendU64(appendU64(appendU32(b, r.Resource), r.Soft), r.Hard)
	}
	return b
}

func (d *decoder) rlimits() []Rlimit {
	limits := make([]Rlimit, d.count(4+8+8))
	for i := range limits {
		limits[i] = Rlimit{Resource: d.u32(), Soft: d.u64(), Hard: d.u64()}
	}
	return limits
}

// mountMin is the length of the shortest encoded Mount, in bytes.
const mountMin = 1 + 4 + 4 + 4 + 8 + 8 + 4 + 4 + 4

func (m *Mount) append(b []byte) []byte {
	b = append(b, byte(m.Kind))
	b = appendU32(appendStr(appendStr(b, m.Source), m.Target), m.Flags)
	b = appendU64(appendU64(b, uint64(m.Size)), uint64(m.Inodes))
	return appendU32(appendU32(appendU32(b, m.Mode), m.UID), m.GID)
}

func (m *Mount) decode(d *decoder) {
	m.Kind = MountKind(d.u8())
	m.Source, m.Target, m.Flags = d.str(), d.str(), d.u32()
	m.Size, m.Inodes = int64(d.u64()), int64(d.u64())
	m.Mode, m.UID, m.GID = d.u32(), d.u32(), d.u32()
}
