package wire

// Stage is the only request of the host to a stage (agent.ModeStage), in a frame of TypeSetup. Its
// descriptors are, in order: the container runtime's executable, the runtime's standard error
// output, and the detached mounts that Mounts attaches.
type Stage struct {
	// Base is an existing directory. The stage mounts a tmpfs over it, in its own mount namespace
	// only. Below it are StageRoot, where Mounts build the root, and StageState, the runtime's
	// state directory.
	Base string
	// Mounts build the container's root, as those of Setup do.
	Mounts []Mount
	// Config is the bundle's config.json.
	Config []byte
	// Args and Env are those of the runtime.
	Args, Env []string
	// Mitigate is as in Setup. The runtime inherits the switches, and so does the whole sandbox.
	Mitigate bool
}

// The directories below Stage.Base.
const (
	StageBundle = "/bundle"
	StageRoot   = StageBundle + "/rootfs"
	StageState  = "/state"
)

// Descriptors that the runtime passes on to the container.
const (
	StageSocketFD = 3 // the connection to the host
	StageAgentFD  = 4 // the agent's executable
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

// Decode reads s from a payload. Config shares memory with the payload.
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
