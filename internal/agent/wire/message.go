package wire

import (
	"encoding/binary"
	"io"
)

// Hello is the first message of an agent.
type Hello struct{ Generation uint32 }

// Append appends the encoding of m.
func (m *Hello) Append(b []byte) []byte { return appendU32(b, m.Generation) }

// Decode reads m from a payload.
func (m *Hello) Decode(p []byte) error {
	d := decoder{b: p}
	m.Generation = d.u32()
	return d.end()
}

// Failure is the stage at which a request failed.
type Failure uint8

// The stages of a request.
const (
	OK           Failure = iota
	FailProtocol         // the request is malformed, or not possible now
	FailSetup            // the agent could not build or renew the sandbox; Text names the step
	FailDir              // the working directory
	FailExec             // the program was not found or not executed
	FailFile             // a file operation
	FailDial             // connecting
	FailKill             // processes with the tag still run after the time limit
	FailSpawn            // the spawner could not start an agent; Text names the step
	FailTerminal         // the program's terminal could not be made
)

// Reply answers a request. Errno is the kernel's error number, 0 if none.
type Reply struct {
	Failure Failure
	Errno   uint32
	Text    string // the step that failed: one of a fixed set, or a path of the plan
	Data    []byte // the result of the request
}

// maxText bounds Text, in bytes.
const maxText = 8 << 10

// Append appends the encoding of m.
func (m *Reply) Append(b []byte) []byte {
	b = append(b, byte(m.Failure))
	b = appendU32(b, m.Errno)
	b = appendStr(b, m.Text)
	return append(appendU32(b, uint32(len(m.Data))), m.Data...)
}

// AppendReply appends the encoding of a successful Reply. data appends the Reply's Data to its
// argument.
func AppendReply(b []byte, data func(b []byte) []byte) []byte {
	b = (&Reply{}).Append(b)
	begin := len(b)
	b = data(b)
	binary.LittleEndian.PutUint32(b[begin-4:], uint32(len(b)-begin))
	return b
}

// Decode reads m from a payload. Data shares memory with the payload.
func (m *Reply) Decode(p []byte) error {
	d := decoder{b: p}
	m.Failure = Failure(d.u8())
	m.Errno = d.u32()
	m.Text = d.str()
	m.Data = d.bytes()
	d.failed = d.failed || m.Failure > FailTerminal || len(m.Text) > maxText
	return d.end()
}

// Start asks for a program. If the frame carries descriptors, they become the program's 0, 1 and 2.
// Otherwise the program's streams are channels 0, 1 and 2 under the frame's id.
type Start struct {
	Args []string
	Env  []string // "K=V", appended to that of Setup; the last value of a name wins
	Dir  string
	// Terminal is the size of the program's terminal; the zero value is none. A terminal's input is
	// channel 0 and its output channel 1, and there is no channel 2 and no descriptor.
	Terminal TerminalSize
}

// TerminalSize is the size of a terminal, and the payload of a Resize frame.
type TerminalSize struct{ Rows, Cols uint16 }

// Append appends the encoding of m.
func (m *TerminalSize) Append(b []byte) []byte {
	return appendU32(b, uint32(m.Rows)<<16|uint32(m.Cols))
}

// Decode reads m from a payload.
func (m *TerminalSize) Decode(p []byte) error {
	d := decoder{b: p}
	m.decode(&d)
	return d.end()
}

func (m *TerminalSize) decode(d *decoder) {
	n := d.u32()
	m.Rows, m.Cols = uint16(n>>16), uint16(n)
	d.failed = d.failed || (m.Rows == 0) != (m.Cols == 0)
}

// Append appends the encoding of m.
func (m *Start) Append(b []byte) []byte {
	b = appendStr(appendStrs(appendStrs(b, m.Args), m.Env), m.Dir)
	return m.Terminal.Append(b)
}

// Decode reads m from a payload.
func (m *Start) Decode(p []byte) error {
	d := decoder{b: p}
	m.Args, m.Env, m.Dir = d.strs(), d.strs(), d.str()
	m.Terminal.decode(&d)
	return d.end()
}

// Started is Data of the Reply to a successful Start.
type Started struct {
	// PID is the program's process id in the sandbox's PID namespace.
	PID uint32
	// Tag identifies the program and every process that it starts, for Kill. It is unique for the
	// life of the sandbox.
	Tag uint64
}

// Append appends the encoding of m.
func (m *Started) Append(b []byte) []byte { return appendU64(appendU32(b, m.PID), m.Tag) }

// Decode reads m from a payload.
func (m *Started) Decode(p []byte) error {
	d := decoder{b: p}
	m.PID, m.Tag = d.u32(), d.u64()
	return d.end()
}

// Kill asks the agent to kill every process with a tag.
type Kill struct{ Tag uint64 }

// Append appends the encoding of m.
func (m *Kill) Append(b []byte) []byte { return appendU64(b, m.Tag) }

// Decode reads m from a payload.
func (m *Kill) Decode(p []byte) error {
	d := decoder{b: p}
	m.Tag = d.u64()
	return d.end()
}

// AdoptAttrs is Data of the Reply to TypeAdoptAttrs: what a process must take on before Adopt.
type AdoptAttrs struct {
	// Tag is the tag of the process to adopt, see Started. The process must set it as soft and hard
	// limit of Resource.
	Tag      uint64
	Resource uint32
	// Rlimits are the agent's own limits, which programs inherit.
	Rlimits []Rlimit
}

// Append appends the encoding of m.
func (m *AdoptAttrs) Append(b []byte) []byte {
	return appendRlimits(appendU32(appendU64(b, m.Tag), m.Resource), m.Rlimits)
}

// Decode reads m from a payload.
func (m *AdoptAttrs) Decode(p []byte) error {
	d := decoder{b: p}
	m.Tag, m.Resource, m.Rlimits = d.u64(), d.u32(), d.rlimits()
	return d.end()
}

// Adopt registers a process that the host has put into the sandbox.
type Adopt struct {
	PID uint32 // in the sandbox's PID namespace
	Tag uint64 // from AdoptAttrs
}

// Append appends the encoding of m.
func (m *Adopt) Append(b []byte) []byte { return appendU64(appendU32(b, m.PID), m.Tag) }

// Decode reads m from a payload.
func (m *Adopt) Decode(p []byte) error {
	d := decoder{b: p}
	m.PID, m.Tag = d.u32(), d.u64()
	return d.end()
}

// Exited reports the end of a program.
type Exited struct {
	Code   uint8 // exit code, if Signal is 0
	Signal uint8 // the signal that ended the program, or 0
	// OutOfMemory: the agent's memory watchdog killed the program; or, in a whole machine, its kernel
	// killed a process for lack of memory while the program ran.
	OutOfMemory bool
	CPU         uint64 // microseconds, user and system, of the program and its waited-for children
	MaxRSS      uint64 // bytes; the largest resident set among them (ru_maxrss, getrusage(2))
}

// Append appends the encoding of m.
func (m *Exited) Append(b []byte) []byte {
	return appendU64(appendU64(append(b, m.Code, m.Signal, bit(m.OutOfMemory)), m.CPU), m.MaxRSS)
}

// Decode reads m from a payload.
func (m *Exited) Decode(p []byte) error {
	d := decoder{b: p}
	m.Code, m.Signal, m.OutOfMemory = d.u8(), d.u8(), d.truth()
	m.CPU, m.MaxRSS = d.u64(), d.u64()
	return d.end()
}

// Signal asks the agent to signal the process group of the program with the frame's id.
type Signal struct{ Number uint8 }

// Append appends the encoding of m.
func (m *Signal) Append(b []byte) []byte { return append(b, m.Number) }

// Decode reads m from a payload.
func (m *Signal) Decode(p []byte) error {
	d := decoder{b: p}
	m.Number = d.u8()
	return d.end()
}

// Release unblocks a program that opens a file of FSBlock.
type Release struct {
	Program uint32 // the id of its Start
	Handle  uint32 // of FSBlock
	Bytes   []byte // the end of the file, which appears with them
}

// Append appends the encoding of m.
func (m *Release) Append(b []byte) []byte {
	b = appendU32(appendU32(b, m.Program), m.Handle)
	return append(appendU32(b, uint32(len(m.Bytes))), m.Bytes...)
}

// Decode reads m from a payload, whose memory Bytes shares.
func (m *Release) Decode(p []byte) error {
	d := decoder{b: p}
	m.Program, m.Handle, m.Bytes = d.u32(), d.u32(), d.bytes()
	return d.end()
}

// Clock sets the clock of a whole machine, which has stood still.
type Clock struct{ Time int64 } // nanoseconds since 1970

// Append appends the encoding of m.
func (m *Clock) Append(b []byte) []byte { return appendU64(b, uint64(m.Time)) }

// Decode reads m from a payload.
func (m *Clock) Decode(p []byte) error {
	d := decoder{b: p}
	m.Time = int64(d.u64())
	return d.end()
}

// Dial asks for a TCP connection to a port on the sandbox's loopback interface.
type Dial struct{ Port uint16 }

// Append appends the encoding of m.
func (m *Dial) Append(b []byte) []byte { return appendU16(b, m.Port) }

// Decode reads m from a payload.
func (m *Dial) Decode(p []byte) error {
	d := decoder{b: p}
	m.Port = d.u16()
	return d.end()
}

// Watch asks for the changes in a directory.
type Watch struct {
	Path      string
	Recursive bool // and in all directories below it
}

// Bounds of watches.
const (
	MaxWatches     = 64     // at once
	MaxWatchedDirs = 10_000 // directories of one watch
)

// Append appends the encoding of m.
func (m *Watch) Append(b []byte) []byte { return append(appendStr(b, m.Path), bit(m.Recursive)) }

// Decode reads m from a payload.
func (m *Watch) Decode(p []byte) error {
	d := decoder{b: p}
	m.Path, m.Recursive = d.str(), d.truth()
	return d.end()
}

// FileOp is the kind of a FileEvent.
type FileOp uint8

// The kinds of events, as in package sandbar.
const (
	FileCreated FileOp = iota + 1
	FileWritten
	FileRemoved
	FileRenamed
	FileChmod
	FileEventsLost
)

// MaxEventPath is the longest path of an event, in bytes.
const MaxEventPath = 4095

// FileEvent is one change below a watched directory.
type FileEvent struct {
	Op   FileOp
	Path string // relative to the watched directory
}

// AppendFileEvent appends the encoding of e: the kind, the length of the path (2 bytes) and the
// path. Events follow each other in a stream; a Data frame may end inside one.
func AppendFileEvent(b []byte, e FileEvent) []byte {
	return append(appendU16(append(b, byte(e.Op)), uint16(len(e.Path))), e.Path...)
}

// ReadFileEvent reads an event from a stream. io.EOF: the stream has ended after a whole event.
func ReadFileEvent(r io.Reader) (FileEvent, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return FileEvent{}, err
	}
	d := decoder{b: head[:]}
	e := FileEvent{Op: FileOp(d.u8())}
	n := d.u16()
	if e.Op < FileCreated || e.Op > FileEventsLost || n > MaxEventPath {
		return FileEvent{}, errEvent
	}
	path := make([]byte, n)
	if _, err := io.ReadFull(r, path); err != nil {
		return FileEvent{}, io.ErrUnexpectedEOF
	}
	e.Path = string(path)
	return e, nil
}

// FSOp is a file operation.
type FSOp uint8

// The file operations, with the fields that each uses. If an operation returns a descriptor and the
// connection cannot pass one, Data of the Reply is a handle (uint32) for FSRead, FSWrite and
// FSClose.
const (
	FSOpen      FSOp = iota + 1 // Path → descriptor, read only; Data: one FileInfo
	FSCreate                    // Path, Mode, Flags → descriptor; Data: handle of the pending file
	FSCommit                    // Handle: the pending file appears at its path
	FSAbort                     // Handle: the pending file is removed
	FSStat                      // Path; Data: one FileInfo
	FSReadDir                   // Path, To (after this name), Size (most entries); Data: Listing
	FSMkdir                     // Path, Mode, Flags
	FSRemove                    // Path, Flags
	FSRename                    // Path, To, Flags
	FSChmod                     // Path, Mode, Flags
	FSRead                      // Handle, Offset, Size; Data: bytes, empty at the end
	FSWrite                     // Handle, Bytes: written at the end of what was written before
	FSClose                     // Handle
	FSReadFiles                 // Bytes (Paths), Size (most bytes of each); Data: FileContents of the first of them
	FSChown                     // Path, UID, GID, Flags
	FSUsage                     // Data: one FileInfo, whose Size is the bytes of memory in use; not every agent knows
	FSPut                       // Path, Mode, Flags (FSParents), Bytes: a whole file, which appears when it is written
	FSBlock                     // Path, Mode: opening the file blocks; Data: handle of the pending file, for Release
	FSCounters                  // Data: FileContents of CounterFiles, those of the container's cgroup
)

// Flags of file operations.
const (
	FSParents   uint32 = 1 << iota // create missing parent directories
	FSRecursive                    // apply to the contents of directories as well
	FSAppend                       // FSCreate: write at the end of the file itself
	FSNoReplace                    // FSRename: fail if To exists
)

// FSRequest is a file operation. Unused fields are zero.
type FSRequest struct {
	Op     FSOp
	Path   string
	To     string
	Mode   uint32
	Flags  uint32
	Handle uint32
	Offset uint64
	Size   uint32
	UID    uint32 // Same: leave unchanged
	GID    uint32
	Bytes  []byte
}

// Same is the user or group id that leaves a file's owner unchanged (chown(2): -1).
const Same = 1<<32 - 1

// Append appends the encoding of m.
func (m *FSRequest) Append(b []byte) []byte {
	b = append(b, byte(m.Op))
	b = appendStr(appendStr(b, m.Path), m.To)
	b = appendU32(appendU32(appendU32(b, m.Mode), m.Flags), m.Handle)
	b = appendU32(appendU64(b, m.Offset), m.Size)
	b = appendU32(appendU32(b, m.UID), m.GID)
	return append(appendU32(b, uint32(len(m.Bytes))), m.Bytes...)
}

// Decode reads m from a payload. Bytes shares memory with the payload.
func (m *FSRequest) Decode(p []byte) error {
	d := decoder{b: p}
	m.Op = FSOp(d.u8())
	m.Path, m.To = d.str(), d.str()
	m.Mode, m.Flags, m.Handle = d.u32(), d.u32(), d.u32()
	m.Offset, m.Size = d.u64(), d.u32()
	m.UID, m.GID = d.u32(), d.u32()
	m.Bytes = d.bytes()
	return d.end()
}

// FileInfo describes one file; Mode is the kernel's st_mode.
type FileInfo struct {
	Name     string
	Target   string // text of a symbolic link
	Size     uint64
	Mode     uint32
	UID, GID uint32
	MTime    int64 // nanoseconds since 1970
}

// fileInfoMin is the length of the shortest encoded FileInfo, in bytes.
const fileInfoMin = 4 + 4 + 8 + 4 + 4 + 4 + 8

// AppendFileInfos appends the encoding of infos.
func AppendFileInfos(b []byte, infos []FileInfo) []byte {
	b = appendU32(b, uint32(len(infos)))
	for i := range infos {
		f := &infos[i]
		b = appendStr(appendStr(b, f.Name), f.Target)
		b = appendU32(appendU64(b, f.Size), f.Mode)
		b = appendU32(appendU32(b, f.UID), f.GID)
		b = appendU64(b, uint64(f.MTime))
	}
	return b
}

// DecodeFileInfos reads what AppendFileInfos wrote.
func DecodeFileInfos(p []byte) ([]FileInfo, error) {
	d := decoder{b: p}
	infos := make([]FileInfo, d.count(fileInfoMin))
	for i := range infos {
		f := &infos[i]
		f.Name, f.Target = d.str(), d.str()
		f.Size, f.Mode = d.u64(), d.u32()
		f.UID, f.GID = d.u32(), d.u32()
		f.MTime = int64(d.u64())
	}
	return infos, d.end()
}

// AppendHandle appends a handle, as Data of a Reply.
func AppendHandle(b []byte, h uint32) []byte { return appendU32(b, h) }

// DecodeHandle reads a handle from the front of p and returns the rest.
func DecodeHandle(p []byte) (uint32, []byte, error) {
	d := decoder{b: p}
	h := d.u32()
	if d.failed {
		return 0, nil, errShort
	}
	return h, d.b, nil
}

// AppendChannel appends the payload prefix of Data, Credit and Close frames.
func AppendChannel(b []byte, channel uint8) []byte { return append(b, channel) }

// DecodeChannel splits the payload of a Data, Credit or Close frame.
func DecodeChannel(p []byte) (channel uint8, rest []byte, err error) {
	if len(p) == 0 {
		return 0, nil, errShort
	}
	return p[0], p[1:], nil
}

// AppendCredit appends the payload of a Credit frame.
func AppendCredit(b []byte, channel uint8, n uint32) []byte {
	return appendU32(AppendChannel(b, channel), n)
}

// DecodeCredit reads the number of a Credit frame, after DecodeChannel.
func DecodeCredit(p []byte) (uint32, error) {
	d := decoder{b: p}
	n := d.u32()
	return n, d.end()
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}
