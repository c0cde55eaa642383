package wire

// Setup is the first frame that the host sends to an agent that is PID 1 of new namespaces: the
// complete plan of the sandbox. The agent applies it once, in the order of the fields below. A
// Setup holds no secrets.
type Setup struct {
	// Prebuilt says that a container runtime has already made the sandbox's namespaces, root and
	// network. The agent then ignores Hostname, Interface, Root and Mounts, and applies the rest as
	// usual.
	Prebuilt bool
	// Hostname of the UTS namespace.
	Hostname string
	// Remove lists files and empty directories that the container runtime created and that programs
	// must not find. A Prebuilt agent removes them in order and skips missing ones.
	Remove []string
	// Root is an existing directory of the host. The agent builds the new root over it, in its own
	// mount namespace only.
	Root string
	// Interface is created before the root is built.
	Interface Interface
	// Mounts build the new root, in order. Targets are absolute paths in the new root; the agent
	// prefixes Root. Afterwards the agent pivots (pivot_root(2)).
	Mounts []Mount
	// Sysctls are set in the sandbox's own namespaces. The agent skips those that the kernel lacks.
	Sysctls []Sysctl
	// Rlimits are set on the agent, and every program inherits them.
	Rlimits []Rlimit
	// Nice is added to the nice value of programs, 0 to 19. It stands for the weight of a cgroup on
	// hosts without one.
	Nice uint8
	// Mitigate disables speculation across programs: store bypass and shared indirect branch
	// prediction per program, and a core scheduling cookie for the whole sandbox. The agent skips
	// what the kernel has no switch for.
	Mitigate bool
	// UID and GID are those of programs and of every file operation, inside the user namespace. If
	// the namespace maps a range of ids, the agent is another user and keeps the capabilities
	// SETUID, SETGID and KILL, and on a stream connection CHOWN. If the namespace maps one id, the
	// agent is UID too and has no capabilities.
	UID, GID uint32
	// TagResource is the resource whose hard limit is the process tag: RLIMIT_LOCKS (10), or
	// RLIMIT_RSS (5) in gVisor. ProgramSeccomp must forbid programs to change it.
	TagResource uint32
	// Landlock is the second layer of file access control. It applies to every thread that starts
	// programs or opens files.
	Landlock Landlock
	// Seccomp is a classic BPF program of 8-byte instructions in native byte order (seccomp(2)).
	// The agent installs it last, on all threads.
	Seccomp []byte
	// ProgramSeccomp is a second such filter for the launcher thread, and so for programs. It
	// forbids what only the agent may do.
	ProgramSeccomp []byte
	// Capabilities are those that programs of a whole machine can have, a bit for each (capability(7),
	// AllCapabilities for no reduction). A second Setup with another value than 0 leaves programs
	// those that are in both. Programs of other agents have none.
	Capabilities uint64
	// Env is the environment of every program, "K=V". A Start can add to it.
	Env []string
	// OwnEnv says which of the agent's own variables programs have.
	OwnEnv OwnEnv
	// Dir is the directory that relative paths start from, and the default working directory.
	Dir string
	// Watchdog is the most memory that all programs may hold together, in bytes, on a host without
	// a memory cgroup. Beyond it the agent kills all programs. 0 means no watchdog.
	Watchdog int64
	// PIDs is the most processes and threads that the programs may have together. The agent
	// enforces it with the cgroups of the sandbox's own kernel (gVisor, a machine). 0 if the host's
	// cgroup enforces the limit.
	PIDs int64
	// WatchDisks are mount points of tmpfs, whose used bytes count towards Watchdog.
	WatchDisks []string
	// WatchKernel says that the sandbox has a kernel of its own (gVisor). The watchdog then reads
	// that kernel's account of all memory.
	WatchKernel bool
}

// OwnEnv is for an agent in a container whose image the host cannot read: the agent's own variables
// have those of the image. The zero value uses none of them.
type OwnEnv struct {
	Use bool
	// Below are variables "K=V" that the agent's own replace. Setup.Env replaces both.
	Below []string
	// Omit are names of variables that programs do not get. A name that ends with * stands for all
	// that begin with the rest.
	Omit []string
}

// AllCapabilities is every capability that a kernel has.
const AllCapabilities = 1<<64 - 1

// Launch is the plan for ModeTemplate: the agent's program starts an interpreter, which the host
// later forks into sandboxes.
type Launch struct {
	Args []string // the interpreter, looked up in PATH of Env, and its arguments
	Env  []string // "K=V"; the interpreter has no other variables
	Dir  string
	// Namespaces is the number of inherited namespace descriptors to enter. If it is over 0, the
	// interpreter becomes UID and GID without supplementary groups. If it is 0, the interpreter
	// keeps its user.
	Namespaces uint8
	UID, GID   uint32
	Rlimits    []Rlimit
	Seccomp    []byte // as in Setup
	Score      string // written to oom_score_adj
	Mitigate   bool   // as in Setup, without the core scheduling cookie
}

// MountKind is the kind of a Mount step.
type MountKind uint8

// The kinds of step. A missing target is created: a directory, or an empty file for a bind of a
// file and for MountFile.
const (
	MountTmpfs MountKind = iota + 1 // a new tmpfs: Size, Inodes, Mode, UID, GID
	MountBind                       // Source of the host, with all mounts below it
	// proc of the new PID namespace, with the mount options in Source
	MountProc
	MountDevpts    // a private instance of devpts
	MountMkdir     // a directory: Mode, UID, GID
	MountSymlink   // a symbolic link whose text is Source
	MountFile      // a file with the bytes of Source: Mode
	MountBindInner // bind of Source, which is a path of the new root
	// an empty read-only directory or file over Target; a missing Target is skipped
	MountMask
	MountSetFlags // set the flags of the mount at Target
	// as Bind of a directory, which may lie below Root; if Source is "", attach the detached mount
	// of descriptor number Size that came with Setup
	MountAttach
	// an overlay of the directories lower, upper and work in Source, a path of the new root
	MountOverlay
	// a read-only unlinked file with the bytes of Source over the file Target; a missing Target is
	// skipped
	MountReplaceFile
	// Mask of every accessible entry of Target, except processes, symbolic links and the
	// space-separated names in Source
	MountMaskOthers
	// the last step: the mount at Target becomes the root, and all else is detached
	MountRoot
	// SaveFiles saves the files of the tmpfs at Target, without the mounts in it, and without the
	// space-separated paths in Source
	MountKeep
	// restores the files of a SaveFiles in the tmpfs of the MountKeep before it. Size is the number
	// of the descriptor that came with Setup, a file at its beginning; UID and GID own the files.
	// Entries that exist stay, except files and links at the space-separated paths in Source
	MountRestore
)

// Flags of a mount. A bind sets its flags on all mounts below it too.
const (
	MountReadOnly uint32 = 1 << iota
	MountNoSuid
	MountNoDev
	MountNoExec
	MountOptional // a missing Source skips the step; so does an overlay that the kernel refuses
)

// Mount is one step of building the root.
type Mount struct {
	Kind   MountKind
	Source string
	Target string
	Flags  uint32
	Size   int64 // bytes, of a tmpfs
	Inodes int64 // of a tmpfs
	Mode   uint32
	UID    uint32 // inside the user namespace
	GID    uint32
}

// Sysctl is one setting below /proc/sys; Name is a path such as "user/max_inotify_watches".
type Sysctl struct{ Name, Value string }

// Rlimit is one resource limit. Resource is the kernel's number (getrlimit(2)).
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// Landlock is a ruleset (landlock(7)). The agent clears the rights that the running kernel does not
// know (LANDLOCK_CREATE_RULESET_VERSION).
type Landlock struct {
	HandledFS uint64 // LANDLOCK_ACCESS_FS_* ; 0 means no Landlock
	Scoped    uint64 // LANDLOCK_SCOPE_*
	Rules     []LandlockRule
}

// LandlockRule allows Access beneath Path, a path of the new root. The agent skips a missing path,
// and clears the rights of directories if Path is a file.
type LandlockRule struct {
	Path   string
	Access uint64
}
