// Package call is the language between a sandbox's worker, which has its files
// and streams, and a runner, the process in which WebAssembly executes: the
// system calls of a kernel whose programs are in another process.
//
// # Frames
//
// A frame is four bytes of length, little endian, a byte that tells its kind,
// and a payload. The worker sends Run; the runner then sends any number of
// Requests, each answered by one Answer before the next, and ends with Done.
// Then it can be given another Run. The runner does nothing by itself, and
// ends with its input.
//
// Both sides treat the other as hostile: sizes are bounded before memory is
// taken, and what cannot be decoded is the end of the conversation. To the
// worker a runner is a program like any other: whatever it asks for, it gets
// only what the program may have.
package call

// Limits of a frame.
const (
	// MaxData is the most bytes that one Read or Write moves.
	MaxData = 256 << 10
	// MaxFrame bounds all frames; that of Run is the largest, with its
	// arguments and environment.
	MaxFrame = 8 << 20
)

// Kind is the kind of a frame.
type Kind uint8

// The kinds of frame, with who sends them.
const (
	KindRun     Kind = 1 // worker: Run
	KindRequest Kind = 2 // runner: Request
	KindAnswer  Kind = 3 // worker: Answer
	KindDone    Kind = 4 // runner: Done
	KindLoad    Kind = 5 // worker: Load
)

// Language is what a Run is written in.
type Language uint8

// The languages.
const (
	Python     Language = 1
	JavaScript Language = 2
)

// Run asks a runner to run a program.
type Run struct {
	Language Language
	Args     []string // with the program's own name
	Env      []string // "K=V"
	Dir      string   // absolute
	// Memory is the most linear memory the program may have, in bytes. Within
	// it, each growth is asked for (Memory).
	Memory int64
}

// Load asks a runner to get ready for a language, before a Run. There is no
// answer.
type Load struct{ Language Language }

// Done tells of a program's end.
type Done struct {
	Code   uint8
	CPU    int64 // microseconds, of the runner while the program ran
	Memory int64 // bytes of linear memory at its largest
	Denied bool  // it was refused memory
	Fault  bool  // it ended by a trap, or by a fault of the runner; Text tells
	Text   string
}

// Op is a system call.
type Op uint8

// The system calls and the fields each uses. Handles 0, 1 and 2 are the
// program's standard streams. Paths are absolute or start at the Run's Dir.
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
	Append                 // Handle, Flags: whether writes are at the end
	Mkdir                  // Path, Mode
	Unlink                 // Path
	Rmdir                  // Path
	Rename                 // Path, To
	Link                   // Path, To
	Symlink                // Path: what it holds, To: where it is made
	Readlink               // Path → Data
	Chmod                  // Path, Mode
	Utimens                // Path, Flags, Offset and Size: access and modification in nanoseconds, or Omit
	Futimens               // Handle, likewise
	Realpath               // Path → Data
	Memory                 // Size: all the linear memory the program is to have from now on
	Spawn                  // Data: Command → Size: exit code, Handle: its output, Handle+1: its errors
)

// Omit leaves a time as it is.
const Omit = -1 << 63

// Flags of Open, Stat, Utimens and ReadDir.
const (
	FlagRead uint32 = 1 << iota
	FlagWrite
	FlagCreate
	FlagExclusive
	FlagTruncate
	FlagAppend
	FlagDirectory // fail unless it is one
	FlagNoFollow  // a link in the last place is itself meant
	FlagFromStart
)

// Request is one system call; unused fields are zero.
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

// Answer is what comes of a Request.
type Answer struct {
	Errno  Errno
	Handle uint32
	Size   int64
	Stat   Info
	Data   []byte
}

// Type is the type of a file, numbered as WASI does.
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

// Command is a program that a program starts and waits for.
type Command struct {
	Args []string
	Env  []string
	Dir  string
	// Input is its standard input; what cannot be sent in one frame cannot be
	// given.
	Input []byte
}
