// Package wire defines the protocol between the host and the agent: frames over one byte stream,
// and one plain struct per kind of frame.
//
// # Frames
//
// A frame is a header of 12 bytes, little endian, and a payload:
//
//	0  uint32  length of the payload, at most MaxPayload
//	4  uint8   type
//	5  uint8   number of descriptors that travel with the frame
//	6  uint16  zero
//	8  uint32  id: of the request, the process or the channel
//
// Descriptors are attached to the first byte of the frame (SCM_RIGHTS, unix(7)). Only a UNIX socket
// can carry them. Over any other stream the number is always 0, and Data frames move the bytes
// instead.
//
// # Conversation
//
// The agent sends Hello, with its Generation. The host sends Setup if the agent must build its own
// sandbox, or must confine programs in a sandbox that a container runtime built. The agent answers
// with a Reply. Then the host sends requests under ids of its choosing (Start, FS, Release, Dial,
// Watch, Kill). The agent answers each with exactly one Reply with that id. The Reply to a
// successful Start has a Started. One Exited with the same id follows, and then the id is free.
// Signal and Resize have no answer. Kill names a program by its tag, even if the program has ended;
// the answer follows when no process that the program started is left. After the Reply to a Watch,
// channel 1 carries the events, see AppendFileEvent; Close of channel 0 ends the watch. SaveFiles
// has the write end of a pipe, to which the agent writes the files that programs have written, as a
// stream that MountRestore reads; it answers when it has written all of it. Clock has
// an answer if it has an id, Renew has a Reply; only an agent of a whole machine accepts them.
// Suspend, Resume and Continue are also for whole machines; see type Resume.
//
// The host can also put a process into the sandbox itself. AdoptAttrs asks for the tag, limits and
// Landlock ruleset which that process must take on. When the process is a child of the agent, Adopt
// registers it as one of the agent's programs. The answers to Adopt are those to Start.
//
// Without descriptors, the streams of a process and a dialled connection are channels: Data carries
// bytes, Credit grants the sender that many more bytes, Close ends one direction. The initial
// credit is Window. A sender never exceeds its credit, so each side buffers at most Window bytes
// per channel.
//
// A spawner is the same program in another mode and speaks the same frames. It sends Hello. It
// answers each Spawn with a Reply, whose Data is a Spawned and whose one descriptor is a pidfd.
//
// Each side treats the other as hostile: it bounds sizes before it allocates memory, and any
// violation ends the connection.
package wire

// Generation is the version of the protocol. Host and agent must have the same. The host carries
// its own agent, so the two differ only if an agent outlives an upgrade of the host or is part of
// an image.
//
//	1  2026-11  the first
//	2  2026-11  Setup builds roots out of images, one of which may come with it
//	3  2026-11  Kill; the answer to Start is Started; Setup has ProgramSeccomp
//	4  2026-11  Setup has an Interface, whose device the answer may carry
//	5  2026-11  FSReadFiles, FSChown; FSRename may refuse to replace; a listing has Complete
//	6  2026-11  Setup may be of a prebuilt sandbox, and names the resource limit that is the tag
//	7  2026-11  Spawn
//	8  2026-11  AdoptAttrs, Adopt: programs that the host puts into the sandbox; Spawn has an Owner
//	9  2026-11  Stage; Setup has PIDs
//	10 2026-11  Clock, and agents of whole machines
//	11 2026-11  Setup has Remove
//	12 2026-11  FSPut
//	13 2026-11  FSHold, FSHeld and FSRelease
//	14 2026-11  MountCover and MountMasks; Setup, Launch and Stage have Mitigate
//	15 2026-11  FSHold is FSBlock; Release takes the place of FSHeld and FSRelease
//	16 2026-11  Renew; Monitor; Setup has Capabilities; Watchdog of Exited is OutOfMemory; a machine
//	            has a second Setup
//	17 2026-11  Suspend, Resume and Continue; a Clock with an id is answered; Renew has Template
//	18 2026-11  Start has a Terminal; Resize
//	19 2026-11  Watch
//	20 2026-11  SaveFiles, MountKeep and MountRestore
//	21 2026-11  FSCounters
//	22 2026-11  Setup has OwnEnv
const Generation = 22

// Bounds of a frame and of a channel.
const (
	HeaderSize = 12
	MaxPayload = 1 << 20
	MaxFDs     = 3
	Window     = 256 << 10 // bytes in flight on one channel
)

// Type is the kind of a frame.
type Type uint8

// The kinds of frame, each with its sender and its payload.
const (
	TypeHello      Type = 1  // agent: its generation
	TypeSetup      Type = 2  // host: Setup, with the mounts to attach or none
	TypeReply      Type = 3  // agent: Reply
	TypeStart      Type = 4  // host: Start, with descriptors 0, 1, 2 or none
	TypeExited     Type = 5  // agent: Exited
	TypeSignal     Type = 6  // host: Signal
	TypeFS         Type = 7  // host: FSRequest
	TypeDial       Type = 8  // host: Dial
	TypeData       Type = 9  // both: a byte naming the channel, then bytes
	TypeCredit     Type = 10 // both: a byte naming the channel, then uint32
	TypeClose      Type = 11 // both: a byte naming the channel
	TypeKill       Type = 12 // host: Kill
	TypeSpawn      Type = 13 // host, to a spawner: Spawn, with the agent's connection and perhaps a cgroup
	TypeAdoptAttrs Type = 14 // host: nothing; the answer has an AdoptAttrs, and the Landlock ruleset if there is one
	TypeAdopt      Type = 15 // host: Adopt
	TypeClock      Type = 16 // host: Clock
	// TypeRelease is a request of the host: Release.
	TypeRelease  Type = 17
	TypeRenew    Type = 18 // host: Renew
	TypeSuspend  Type = 19 // host: nothing
	TypeResume   Type = 20 // host: Resume
	TypeContinue Type = 21 // host: Clock
	TypeResize   Type = 22 // host: TerminalSize
	TypeWatch    Type = 23 // host: Watch
	// TypeSaveFiles has one descriptor and no payload, see MountKeep.
	TypeSaveFiles Type = 24
)

// Frame is one frame. Payload belongs to the receiver.
type Frame struct {
	Type    Type
	ID      uint32
	Payload []byte
	FDs     []int
}

// Header decodes a frame's header.
type Header struct {
	Length uint32
	Type   Type
	FDs    uint8
	ID     uint32
}

// AppendHeader appends the 12 bytes of h.
func AppendHeader(b []byte, h Header) []byte {
	b = appendU32(b, h.Length)
	b = append(b, byte(h.Type), h.FDs, 0, 0)
	return appendU32(b, h.ID)
}

// ParseHeader checks and decodes a header of HeaderSize bytes.
func ParseHeader(b []byte) (Header, error) {
	d := decoder{b: b}
	h := Header{Length: d.u32()}
	h.Type, h.FDs = Type(d.u8()), d.u8()
	zero := d.u16()
	h.ID = d.u32()
	switch {
	case d.failed:
		return Header{}, errShort
	case h.Length > MaxPayload:
		return Header{}, errTooLong
	case h.FDs > MaxFDs || zero != 0 || h.Type < TypeHello || h.Type > TypeSaveFiles:
		return Header{}, errHeader
	}
	return h, nil
}
