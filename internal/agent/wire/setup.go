package wire

// Setup is the first frame the host sends to an agent that is PID 1 of fresh
// namespaces: the complete plan of the sandbox, computed by the host. The agent
// applies it in the order of the fields below and never again. It holds no
// secrets.
type Setup struct {
	// Made says that somebody else, a container runtime for one, has made the
	// sandbox's namespaces, root and network already. Then Hostname, Interface,
	// Root and Mounts mean nothing, and what follows confines the programs as
	// ever.
	Prebuilt bool
	// Hostname of the UTS namespace.
	Hostname string
	// Without are the files and empty directories which whoever made the sandbox
	// has put into it and programs are not to find. They are removed in order,
	// where they are there, if Made.
	Remove []string
	// Root is an existing directory of the host over which the new root is
	// built, in the agent's own mount namespace only; nobody else sees it.
	Root string
	// Interface is set up before the root is built.
	Interface Interface
	// Mounts build the new root, in order. Paths of targets are absolute in
	// the new root; the agent prefixes Root. Afterwards the agent pivots.
	Mounts []Mount
	// Sysctls are set in the sandbox's own namespaces, where the kernel has them.
	Sysctls []Sysctl
	// Rlimits are set on the agent and so on all that it starts.
	Rlimits []Rlimit
	// Nice is added to the priority of programs, 0 to 19: a weight where no
	// cgroup has one.
	Nice uint8
	// Mitigate switches off what lets programs attack others by speculation: store
	// bypass and shared branch predictions of programs, and shared processor cores
	// of the sandbox, where the kernel has the switches.
	Mitigate bool
	// UID and GID, inside the user namespace, of programs and of every file
	// operation. The agent itself is another user where the namespace has a range
	// of ids, and has the capabilities SETUID, SETGID and KILL then, and CHOWN over
	// a stream; it is UID where there is only one.
	UID, GID uint32
	// Mark is the resource whose hard limit tells what belongs to which program:
	// RLIMIT_LOCKS (10), or in gVisor RLIMIT_RSS (5). Programs must forbid
	// programs to change it.
	TagResource uint32
	// Landlock is the second layer, on every thread that starts programs or
	// touches files.
	Landlock Landlock
	// Seccomp is a classic BPF program of 8-byte instructions in native byte
	// order, installed on all threads last.
	Seccomp []byte
	// Programs is another such program, for the one thread that starts programs
	// and so for these: what only the agent itself may do.
	ProgramSeccomp []byte
	// Env is the environment of every program, "K=V", before that of a Start.
	Env []string
	// Dir is the directory relative paths start from, and programs by default.
	Dir string
	// Watchdog, if over 0, is how many bytes the programs may hold together
	// where no cgroup counts; beyond it the agent kills them all.
	Watchdog int64
	// PIDs, if over 0, is how many processes and threads the programs may have
	// together, held by the control groups of the kernel that the sandbox has of
	// its own. 0 where the host's hold it.
	PIDs int64
	// WatchDisks are mount points whose used bytes count towards Watchdog.
	WatchDisks []string
	// WatchWhole says that the kernel is the sandbox's own, so that its account
	// of all memory is what the watchdog looks at.
	WatchKernel bool
}

// Launch is what the agent's program reads where it is to start an interpreter
// that will be copied into sandboxes, rather than to be an agent.
type Launch struct {
	Args []string // the interpreter, looked up in PATH of Env, and its arguments
	Env  []string // "K=V", all of it
	Dir  string
	// Namespaces is how many were inherited for it to enter. If there are some it
	// takes on UID and GID, without groups; if there are none it stays who it is.
	Namespaces uint8
	UID, GID   uint32
	Rlimits    []Rlimit
	Seccomp    []byte // as in Setup
	Score      string // for oom_score_adj
	Mitigate   bool   // as in Setup, but for cores
}

// MountKind says what a Mount step does.
type MountKind uint8

// The kinds of step. Targets are made when missing: a directory, or for Bind
// of a file and for File an empty file.
const (
	MountTmpfs       MountKind = iota + 1 // a new tmpfs: Size, Inodes, Mode, UID, GID
	MountBind                             // Source of the host, with all below it
	MountProc                             // proc of the new PID namespace, with the options in Source
	MountDevpts                           // a private instance of devpts
	MountMkdir                            // a directory: Mode, UID, GID
	MountSymlink                          // a link whose text is Source
	MountFile                             // a file with the bytes of Source: Mode
	MountBindInner                        // bind of Source, a path of the new root, not of the host
	MountMask                             // hide: an empty read-only directory or file over Target; a missing one is skipped
	MountSetFlags                         // change the flags of the mount at Target
	MountAttach                           // as Bind of a directory that may lie below Root; without Source, of a mount that came with Setup, descriptor Size
	MountOverlay                          // of the directories lower, upper and work in Source, a path of the new root
	MountReplaceFile                      // a read-only file without a name, with the bytes of Source, over the file Target; a missing one is skipped
	MountMaskOthers                       // Mask of all directly in Target that can be opened, but for processes, links and the names in Source, which spaces separate
	MountRoot                             // the last step: what is mounted at Target becomes the root, and the rest is gone
)

// Flags of a mount. A bind gets its flags on everything below it.
const (
	MountReadOnly uint32 = 1 << iota
	MountNoSuid
	MountNoDev
	MountNoExec
	MountOptional // a missing Source skips the step, as does an overlay that cannot be mounted
)

// Mount is one step of building the root.
type Mount struct {
	Kind   MountKind
	Source string
	Target string
	Flags  uint32
	Size   int64 // bytes, tmpfs
	Inodes int64 // tmpfs
	Mode   uint32
	UID    uint32 // inside the user namespace
	GID    uint32
}

// Sysctl is one setting below /proc/sys, such as "user/max_inotify_watches".
type Sysctl struct{ Name, Value string }

// Rlimit is one resource limit; Resource is the kernel's number.
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// Landlock is a ruleset. The agent clears the bits that the running kernel
// does not know (LANDLOCK_CREATE_RULESET_VERSION) before it uses it.
type Landlock struct {
	HandledFS uint64 // LANDLOCK_ACCESS_FS_* ; 0 means no Landlock
	Scoped    uint64 // LANDLOCK_SCOPE_*
	Rules     []LandlockRule
}

// LandlockRule allows Access beneath Path, a path of the new root. A missing
// path is skipped; bits that apply to directories only are cleared for a file.
type LandlockRule struct {
	Path   string
	Access uint64
}
