package wire

// Stage is the first and only thing the host tells a stage (agent.ModeStage), in
// a frame of TypeSetup. Its descriptors are the runtime's program, what becomes
// the runtime's standard error output, and then the mounts that Mounts attaches.
type Stage struct {
	// Base is an existing directory, over which the stage mounts a file system of
	// its own, in its own mount namespace only. Below it are StageRoot, where
	// Mounts build, and the runtime's own directory, StageState.
	Base string
	// Mounts build the container's root, as those of Setup do.
	Mounts []Mount
	// Config is the bundle's config.json.
	Config []byte
	// Args and Env are the runtime's.
	Args, Env []string
	// Mitigate is as in Setup, for the runtime and so for all of the sandbox.
	Mitigate bool
}

// The directories below Stage.Base.
const (
	StageBundle = "/bundle"
	StageRoot   = StageBundle + "/rootfs"
	StageState  = "/state"
)

// The descriptors that a stage gives the runtime, for the container.
const (
	StageSocketFD = 3 // the connection to the host
	StageAgentFD  = 4 // the agent's program
)

// Append appends the encoding of s.
func (s *Stage) Append(b []byte) []byte {
	b = appendU32(appendStr(b, s.Base), uint32(len(s.Mounts)))
	for i := range s.Mounts {
		b = s.Mounts[i].append(b)
	}
	b = append(appendU32(b, uint32(len(s.Config))), s.Config...)
	return append(appendStrs(appendStrs(b, s.Args), s.Env), bit(s.Mitigate))
}

// Decode reads s from a payload, whose memory Config shares.
func (s *Stage) Decode(p []byte) error {
	d := decoder{b: p}
	s.Base = d.str()
	s.Mounts = make([]Mount, d.count(mountMin))
	for i := range s.Mounts {
		s.Mounts[i].decode(&d)
	}
	s.Config = d.bytes()
	s.Args, s.Env, s.Mitigate = d.strs(), d.strs(), d.truth()
	return d.end()
}
