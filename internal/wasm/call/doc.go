// Package call is the protocol between a sandbox's worker, which has its files and streams, and a
// runner, the process that executes WebAssembly: the system calls of a kernel whose programs run in
// another process.
//
// # Frames
//
// A frame is four bytes of length, little endian, a byte for its kind, and a payload. The worker
// sends Run. The runner then sends any number of Requests, each answered by one Answer before the
// next, and finally Done. Then it can receive another Run. The runner does nothing without a Run,
// and exits at the end of its input.
//
// Each side treats the other as hostile: it bounds sizes before it allocates memory, and closes the
// connection at a malformed frame. To the worker a runner is a program like any other: it gets only
// what the program may have.
package call

// Bounds of a frame.
const (
	// MaxData is the most data in one Read or Write, in bytes.
	MaxData = 256 << 10
	// MaxFrame bounds all frames, in bytes. The largest is Run, with its arguments and environment.
	MaxFrame = 8 << 20
)

// Kind is the kind of a frame.
type Kind uint8

// The kinds of frame, with their senders.
const (
	KindRun     Kind = 1 // worker: Run
	KindRequest Kind = 2 // runner: Request
	KindAnswer  Kind = 3 // worker: Answer
	KindDone    Kind = 4 // runner: Done
	KindLoad    Kind = 5 // worker: Load
)

// Language is the language of a Run.
type Language uint8

// The languages.
const (
	Python     Language = 1
	JavaScript Language = 2
)

// Run starts a program.
type Run struct {
	Language Language
	Args     []string // including argv[0]
	Env      []string // "K=V"
	Dir      string   // absolute
	// Memory is the most linear memory of the program, in bytes. Within it, the program requests
	// each growth (Memory).
	Memory int64
}

// Load prepares a runner for a language before a Run. It has no answer.
type Load struct{ Language Language }

// Done reports a program's end.
type Done struct {
	Code   uint8
	CPU    int64 // microseconds, of the runner while the program ran
	Memory int64 // peak of the linear memory, in bytes
	Denied bool  // a request for memory was refused
	Fault  bool  // it ended by a trap or a fault of the runner; Text has the reason
	Text   string
}

// Op is a system call.
type Op uint8

// The system calls, with the fields that each uses. Handles 0, 1 and 2 are the program's standard
// streams. Paths are absolute or relative to the Run's Dir.
const (
	Open     Op = iota + 1 // Path, Flags, Mode → Handle, Stat
	Close                  // Handle
	Read                   // Handle, Size → Data, empty at the end
	Write                  // Handle, Data → Size
	ReadAt                 // Handle, Offset, Size → Data
	WriteAt                // Handle, Offset, Data → Size
	Seek                   // Handle, Offset, Flags: whence → Size: the offset
	Fstat                  // Handle → Stat
	Stat                   // Path, Flags → Stat
	ReadDir                // Handle; Flags FromStart → Data: Entries, empty at the end
	Truncate               // Handle, Size
	Append                 // Handle, Flags: writes append
	Mkdir                  // Path, Mode
	Unlink                 // Path
	Rmdir                  // Path
	Rename                 // Path, To
	Link                   // Path, To
	Symlink                // Path: the link's text, To: the path of the link
	Readlink               // Path → Data
	Chmod                  // Path, Mode
	Utimens                // Path, Flags, Offset and Size: access and modification in nanoseconds, or Omit
	Futimens               // Handle, likewise
	Realpath               // Path → Data
	Memory                 // Size: the total linear memory from now on
	Spawn                  // Data: Command → Size: exit code, Handle: its output, Handle+1: its errors
)

// Omit leaves a time unchanged.
const Omit = -1 << 63

// Flags of Open, Stat, Utimens and ReadDir.
const (
	FlagRead uint32 = 1 << iota
	FlagWrite
	FlagCreate
	FlagExclusive
	FlagTruncate
	FlagAppend
	FlagDirectory // fail unless it is a directory
	FlagNoFollow  // do not follow a final link
	FlagFromStart
)

// Request is one system call. Unused fields are zero.
type Request struct {
	Op     Op
	Handle uint32
	Flags  uint32
	Mode   uint32
	Offset int64
	Size   int64
	Path   string
	To     string
	Data   []byte
}

// Answer is the result of a Request.
type Answer struct {
	Errno  Errno
	Handle uint32
	Size   int64
	Stat   Info
	Data   []byte
}

// Type is the type of a file, with WASI's numbers.
type Type uint8

// The types.
const (
	TypeUnknown   Type = 0
	TypeCharacter Type = 2
	TypeDirectory Type = 3
	TypeRegular   Type = 4
	TypeSymlink   Type = 7
)

// Info describes a file.
type Info struct {
	Inode               uint64
	Size                int64
	ATime, MTime, CTime int64 // nanoseconds since 1970
	Links               uint32
	Mode                uint32 // permission bits
	Type                Type
}

// Entry is one entry of a directory.
type Entry struct {
	Name  string
	Inode uint64
	Type  Type
}

// Command is a program that another program starts and waits for.
type Command struct {
	Args []string
	Env  []string
	Dir  string
	// Input is its standard input, which must fit into one frame.
	Input []byte
}
