//go:build unix

package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/child"
)

// The descriptors of an unpacker, beside its connection, which is 0.
const (
	lockFD  = 3 // of the directory, which stays locked as long as the unpacker lives
	inputFD = 4 // the archive, if there is one
)

// run has an unpacker do a job in b's staging directory. The unpacker has ended
// when it returns.
func (b *build) run(ctx context.Context, op operation) (result, error) {
	if !starts.Load() {
		return result{}, &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: "this program cannot start the process that unpacks images",
			Fix:     "call sandbox.Self first in main, or use the sandbar command"}
	}
	op.job.Dir, op.job.Limits, op.job.Memory = b.stage(), b.s.limits, b.s.memory
	u := &unpacking{op: op, began: time.Now(), slots: make(chan struct{}, maxRequests)}
	if err := u.start(b.lock); err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source := u.feed(ctx)
	ended := context.AfterFunc(ctx, u.process.Kill)
	r, err := u.talk(ctx)
	stopped := !ended()
	u.process.Kill()
	u.conn.Close()
	<-u.process.Ended() // nothing changes in the staging directory any more
	cancel()
	u.requests.Wait()
	if failure := <-source; failure != nil && !stopped {
		return result{}, failure // the end of what was read too early is not the image's fault
	}
	switch {
	case err == nil:
		return *r, nil
	case stopped:
		return result{}, context.Cause(ctx)
	case errors.Is(err, errEnded):
		return result{}, u.died()
	}
	return result{}, err
}

// unpacking is an unpacker at work, as the daemon sees it.
type unpacking struct {
	op       operation
	process  *child.Process
	conn     *net.UnixConn
	archive  *os.File // where the archive is written
	stderr   tail
	began    time.Time
	messages int64

	slots    chan struct{} // one for each request being answered
	requests sync.WaitGroup
	mu       sync.Mutex // for writing
}

func (u *unpacking) start(lock *os.File) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "making a connection to the process that unpacks images: %w", err)
	}
	defer theirs.Close()
	defer ours.Close()
	files := []*os.File{lock}
	if u.op.input != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
		}
		defer r.Close()
		files, u.archive = append(files, r), w
	}
	c, err := net.FileConn(ours)
	if err == nil {
		u.conn = c.(*net.UnixConn)
		u.process, err = child.StartOn(theirs, []string{Name}, environment(), &u.stderr, files...)
	}
	if err != nil {
		if u.conn != nil {
			u.conn.Close()
		}
		if u.archive != nil {
			u.archive.Close()
		}
	}
	return err
}

// feed writes the archive, and tells the error of its source.
func (u *unpacking) feed(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	if u.op.input == nil {
		failed <- nil
		return failed
	}
	go func() {
		err := u.op.input(ctx, u.archive)
		u.archive.Close()
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, context.Canceled) {
			err = nil
		}
		failed <- err
	}()
	return failed
}

// errEnded: the connection ended before the job was done. errStop: the job is
// done without a result.
var (
	errEnded = errors.New("the process that unpacks images has ended")
	errStop  = errors.New("the store has the image")
)

// talk sends the job and answers requests until the unpacker is done.
func (u *unpacking) talk(ctx context.Context) (*result, error) {
	if err := u.send(&message{Kind: kindJob, Job: &u.op.job}, -1); err != nil {
		return nil, errEnded
	}
	var head [4]byte
	for {
		if _, err := io.ReadFull(u.conn, head[:]); err != nil {
			return nil, errEnded
		}
		m, err := readBody(u.conn, head[:])
		if errors.Is(err, errProtocol) {
			return nil, lied(err.Error())
		}
		if err != nil {
			return nil, errEnded
		}
		if u.messages++; u.messages > allowance(u.began) {
			return nil, lied("it sends too much")
		}
		switch {
		case m.Kind == kindDone && m.Fault != nil:
			return nil, m.Fault.err()
		case m.Kind == kindDone && m.Result != nil:
			return m.Result, nil
		}
		if err := u.serve(ctx, m); err != nil {
			return nil, err
		}
	}
}

// serve answers one message.
func (u *unpacking) serve(ctx context.Context, m *message) error {
	switch {
	case m.Kind == kindProgress && m.Progress != nil && m.Progress.valid(u.op.job.Limits):
		if u.op.progress != nil {
			u.op.progress(*m.Progress)
		}
		return nil
	case m.Kind == kindKnown && u.op.known != nil:
		if u.op.known(m.Text, m.Manifest) {
			return errStop
		}
		return u.send(&message{Kind: kindAnswer, ID: m.ID}, -1)
	case m.Kind == kindDial && u.op.dial != nil, m.Kind == kindOpen && u.op.files != nil:
		select {
		case u.slots <- struct{}{}:
		default:
			return lied("it asks for too much at once")
		}
		u.requests.Go(func() {
			u.answer(ctx, m)
			<-u.slots
		})
		return nil
	}
	return lied("the message " + sandbar.Quote(m.Kind, 20) + " has no place there")
}

// answer sends the descriptor that was asked for, or why there is none. That the
// unpacker cannot be reached shows where its messages are read.
func (u *unpacking) answer(ctx context.Context, m *message) {
	var there interface {
		syscall.Conn
		io.Closer
	}
	var err error
	if m.Kind == kindDial {
		var c net.Conn
		if c, err = u.op.dial(ctx, m.Text); err == nil {
			there = c.(*net.TCPConn)
		}
	} else {
		there, err = u.op.files(m.Text)
	}
	if err != nil {
		_ = u.send(&message{Kind: kindAnswer, ID: m.ID, Fault: faultOf(err)}, -1)
		return
	}
	defer there.Close()
	raw, err := there.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = u.send(&message{Kind: kindAnswer, ID: m.ID}, int(fd)) })
	}
	if err != nil {
		_ = u.send(&message{Kind: kindAnswer, ID: m.ID, Fault: faultOf(err)}, -1)
	}
}

// send sends a message, and a descriptor with it unless it is -1.
func (u *unpacking) send(m *message, fd int) error {
	b, err := encodeMessage(m)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	// The length goes alone: it is never cut, so the descriptor stays with it.
	if _, _, err := u.conn.WriteMsgUnix(b[:4], rights, nil); err != nil {
		return err
	}
	_, err = u.conn.Write(b[4:])
	return err
}

// died says that an unpacker ended before its job was done.
func (u *unpacking) died() error {
	if strings.Contains(u.stderr.String(), "out of memory") {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
			Message: "unpacking the image takes more than " + size(u.op.job.Memory) + " of memory", Fix: "use another image"}
	}
	how := "without a word"
	if err := u.process.Err(); err != nil {
		how = err.Error()
	}
	return &sandbar.Error{Code: sandbar.Unavailable, Field: "image",
		Message: "the process that unpacks images ended before it was done (" + how + ")",
		Fix:     "try again; if it ends so each time, do not use this image"}
}

// tail keeps the first bytes of what an unpacker says when it crashes. They are
// told to nobody: they may hold anything that the unpacker knows.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	if room := 4<<10 - t.b.Len(); room > 0 {
		t.b.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (t *tail) String() string { return t.b.String() }

// socketPair returns two connected sockets that no other child inherits.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "unpacker"), os.NewFile(uintptr(fds[1]), "daemon"), nil
}
