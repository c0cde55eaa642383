package slot

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
	"github.com/sandbar-dev/sandbar/internal/linux/slot/interp"
)

// Slot is the host's end of a slot. Its methods must not be called concurrently.
type Slot struct {
	program *Program
	memory  []byte
	conn    *net.UnixConn
	// Memory and Socket are what the slot's process gets (agent.ModeSlot). Started closes them.
	Memory, Socket *os.File
}

// New makes the memory and the connection of a slot. Exhausted: out of descriptors or memory.
func New(p *Program) (s *Slot, err error) {
	s = &Slot{program: p}
	defer func() {
		if err != nil {
			s.Close()
			s, err = nil, sandbar.Errorf(sandbar.Exhausted, "making the memory of a slot: %w", err)
		}
	}()
	fd, err := unix.MemfdCreate("sandbar-slot", unix.MFD_CLOEXEC)
	if err != nil {
		return s, err
	}
	s.Memory = os.NewFile(uintptr(fd), "slot")
	if err := unix.Ftruncate(fd, interp.Size); err != nil {
		return s, err
	}
	if s.memory, err = unix.Mmap(fd, 0, interp.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return s, err
	}
	if !p.put(s.memory, jobAt) {
		return s, unix.E2BIG
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, err
	}
	s.Socket = os.NewFile(uintptr(pair[1]), "slot")
	ours := os.NewFile(uintptr(pair[0]), "slot")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return s, err
	}
	s.conn = c.(*net.UnixConn)
	return s, nil
}

// Close releases the host's end. The process ends when it next reads.
func (s *Slot) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.memory != nil {
		_ = unix.Munmap(s.memory)
		s.memory = nil
	}
	for _, f := range []*os.File{s.Memory, s.Socket} {
		if f != nil {
			f.Close()
		}
	}
}

// Began closes the files of the slot's process, which has them now, and waits until it is ready to
// build sandboxes. Its ids must have been mapped.
func (s *Slot) Began(ctx context.Context) error {
	s.Memory.Close()
	s.Socket.Close()
	s.Memory, s.Socket = nil, nil
	if err := s.send(nil); err != nil {
		return err
	}
	return s.expect(ctx, msgReady)
}

// Build lets the slot build a sandbox with the ids, which are as in policy.HostRootOptions, and
// with a new network namespace if fresh is set, otherwise with the slot's last one. It does not
// wait. Every sandbox needs a Build before its Start.
func (s *Slot) Build(machineID, bootID string, fresh bool) error {
	s.text(s.program.machineID, machineID)
	s.text(s.program.bootID, bootID)
	if fresh {
		return s.write(msgFresh, nil)
	}
	return s.send(nil)
}

// text replaces a text by another of the same length.
func (s *Slot) text(addr uint64, text string) {
	if addr != 0 {
		copy(s.memory[addr-interp.Base:], text)
	}
}

// Failure is why a program was not started.
type Failure struct {
	// Dir says that the working directory is at fault, Code the file of the code.
	Dir, Code bool
	Errno     unix.Errno
}

// Error returns the text of Errno.
func (f *Failure) Error() string { return f.Errno.Error() }

// Put prepares a job. TooLarge: it does not fit into the slot's memory.
func (s *Slot) Put(j *Job) (*Prepared, error) {
	l := s.program.compile(j)
	if !l.put(s.memory, endAt) {
		return nil, &sandbar.Error{Code: sandbar.TooLarge, Message: "the program, its arguments and its environment are too large for a slot"}
	}
	return &Prepared{s, l}, nil
}

// Prepared is a job in a slot's memory.
type Prepared struct {
	s *Slot
	l *jobList
}

// Start starts the program, after Built, with three descriptors as its standard streams. It returns
// a pidfd, which the caller owns, and the process id in the sandbox. A *Failure says why the
// program was not started; the slot then reports the sandbox's end as after a program.
func (j *Prepared) Start(ctx context.Context, fds []int) (pidfd, pid int, err error) {
	s := j.s
	if err := s.send(fds); err != nil {
		return -1, 0, err
	}
	message, got, err := s.receive(ctx)
	switch {
	case err != nil:
		return -1, 0, err
	case message == msgStarted && len(got) == 1:
		return got[0], int(uint32(s.word(s.program.pid))), nil
	}
	closeAll(got)
	if message == msgNoExec {
		return -1, 0, j.failure()
	}
	return -1, 0, s.unexpected(message)
}

// failure finds out why the program was not started.
func (j *Prepared) failure() error {
	at, result := j.s.word(interp.Base+interp.FailedAt), j.s.word(interp.Base+interp.FailedResult)
	errno := unix.Errno(-int64(result))
	switch j.l.stepAt(at) {
	case stepDir:
		return &Failure{Dir: true, Errno: errno}
	case stepCode:
		return &Failure{Code: true, Errno: errno}
	}
	if name := j.s.program.stepAt(at); name != "" {
		return sandbar.Errorf(codeOf(errno, sandbar.Internal), "a program could not be started: %s: %w", name, errno)
	}
	found := unix.ENOENT
	for _, addr := range j.l.results {
		if e := -int32(j.s.word(addr)); e > 0 && (found == unix.ENOENT || unix.Errno(e) != unix.ENOENT) {
			found = unix.Errno(e)
		}
	}
	return &Failure{Errno: found}
}

// Built waits until the sandbox is built. If Plan.Enter is set, it returns descriptors of the
// sandbox's namespaces, as in Namespaces, and of the Landlock ruleset of programs, if this kernel
// has Landlock. The caller owns them. Start or Adopt must follow. Gone: the slot has ended.
func (s *Slot) Built(ctx context.Context) (fds []int, err error) {
	message, fds, err := s.receive(ctx)
	switch {
	case err != nil:
	case message != msgBuilt:
		err = s.unexpected(message)
	case len(fds) != s.program.passed: // the kernel drops those for which this process has no room
		err = sandbar.Errorf(sandbar.Exhausted, "a slot passed %d descriptors and %d arrived: raise the limit of open files", s.program.passed, len(fds))
	}
	if err == nil && s.ended() {
		err = gone(net.ErrClosed)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

// Adopt makes a process that has entered the sandbox its program. pid is its number there, and its
// parent is the sandbox's first process. It returns a pidfd, which the caller owns.
func (s *Slot) Adopt(ctx context.Context, pid int) (pidfd int, err error) {
	binary.LittleEndian.PutUint64(s.memory[s.program.pid-interp.Base:], uint64(pid))
	if err := s.write(msgAdopt, nil); err != nil {
		return -1, err
	}
	message, fds, err := s.receive(ctx)
	switch {
	case err != nil:
		return -1, err
	case message == msgStarted && len(fds) == 1:
		return fds[0], nil
	}
	closeAll(fds)
	return -1, s.unexpected(message)
}

// Ended waits for the program's end.
func (s *Slot) Ended(ctx context.Context) (wire.Exited, error) {
	var e wire.Exited
	if err := s.expect(ctx, msgEnded); err != nil {
		return e, err
	}
	status := unix.WaitStatus(s.word(s.program.status))
	if status.Signaled() {
		e.Signal = uint8(status.Signal())
	} else {
		e.Code = uint8(status.ExitStatus())
	}
	// struct rusage: two timevals, then ru_maxrss in KiB
	u := s.program.usage
	e.CPU = (s.word(u)+s.word(u+16))*1e6 + s.word(u+8) + s.word(u+24)
	e.MaxRSS = s.word(u+32) << 10
	return e, nil
}

// Emptied waits for the end of the sandbox. It reports false if the program has left processes
// behind; only the end of the slot's process ends them.
func (s *Slot) Emptied(ctx context.Context) (bool, error) {
	message, fds, err := s.receive(ctx)
	closeAll(fds)
	switch {
	case err != nil:
		return false, err
	case message == msgDone:
		return true, nil
	case message == msgOrphans:
		return false, nil
	}
	return false, s.unexpected(message)
}

// ended reports whether the slot or the first process has ended after it had built the sandbox:
// then there is another message, or the connection is closed.
func (s *Slot) ended() (ended bool) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = err != unix.EAGAIN
	})
	return ended || err != nil
}

// word reads 64 bits of the memory.
func (s *Slot) word(addr uint64) uint64 {
	return binary.LittleEndian.Uint64(s.memory[addr-interp.Base:])
}

// expect waits for a message.
func (s *Slot) expect(ctx context.Context, want byte) error {
	message, fds, err := s.receive(ctx)
	closeAll(fds)
	if err == nil && message != want {
		err = s.unexpected(message)
	}
	return err
}

// unexpected returns the error of a message that should not come now.
func (s *Slot) unexpected(message byte) error {
	if message == msgFailed {
		errno := unix.Errno(-int64(s.word(interp.Base + interp.FailedResult)))
		return sandbar.Errorf(codeOf(errno, sandbar.Unsupported), "the sandbox could not be built: %s: %w",
			s.program.stepAt(s.word(interp.Base+interp.FailedAt)), errno)
	}
	if message == msgDone {
		return sandbar.Errorf(sandbar.Gone, "the first process of a slot's sandbox has ended")
	}
	return sandbar.Errorf(sandbar.Internal, "a slot sent %q out of turn", message)
}

// codeOf returns Exhausted for errors of the kernel's limits on processes, namespaces, memory and
// files, else the other code.
func codeOf(e unix.Errno, other sandbar.Code) sandbar.Code {
	switch e {
	case unix.EAGAIN, unix.ENOMEM, unix.ENOSPC, unix.EMFILE, unix.ENFILE:
		return sandbar.Exhausted
	}
	return other
}

// sendTimeout bounds the sending of a message, for which there is always room.
const sendTimeout = 10 * time.Second

// send lets the slot or the first process go on.
func (s *Slot) send(fds []int) error { return s.write(msgGo, fds) }

// write sends a message with descriptors.
func (s *Slot) write(message byte, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	s.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, _, err := s.conn.WriteMsgUnix([]byte{message}, rights, nil); err != nil {
		return gone(err)
	}
	return nil
}

// receive waits for a message until ctx ends.
func (s *Slot) receive(ctx context.Context) (message byte, fds []int, err error) {
	s.conn.SetReadDeadline(time.Time{})
	if ctx.Done() != nil {
		defer func() {
			if err != nil && ctx.Err() != nil {
				err = sandbar.Errorf(sandbar.Canceled, "waiting for a slot: %w", ctx.Err())
			}
		}()
		defer context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })()
	}
	var b [2]byte
	var oob [64]byte
	n, oobn, _, _, err := s.conn.ReadMsgUnix(b[:], oob[:])
	if msgs, perr := unix.ParseSocketControlMessage(oob[:max(oobn, 0)]); perr == nil {
		for i := range msgs {
			if got, perr := unix.ParseUnixRights(&msgs[i]); perr == nil {
				fds = append(fds, got...)
			}
		}
	}
	if err == nil && n != 1 {
		err = net.ErrClosed
	}
	if err != nil {
		closeAll(fds)
		return 0, nil, gone(err)
	}
	return b[0], fds, nil
}

func gone(err error) error { return sandbar.Errorf(sandbar.Gone, "the slot has ended: %w", err) }

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
