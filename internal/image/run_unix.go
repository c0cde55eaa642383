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
	"github.com/sandbar-dev/sandbar/internal/process/child"
)

// run runs an unpacker with a job in b's staging directory. The unpacker has exited when run
// returns.
func (b *build) run(ctx context.Context, op operation) (result, error) {
	if !child.Claimed(Name) {
		return result{}, &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: "this program cannot start the process that unpacks images",
			Fix:     "call sandbox.Self first in main, or use the sandbar command"}
	}
	op.job.Dir, op.job.Limits, op.job.Memory = b.stage(), b.s.limits, b.s.memory
	u := &unpackerProcess{op: op, began: time.Now(), slots: make(chan struct{}, maxRequests)}
	if err := u.start(); err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source := u.feed(ctx)
	ended := context.AfterFunc(ctx, u.process.Kill)
	r, err := u.talk(ctx, b.lock)
	stopped := !ended()
	u.process.Kill()
	u.conn.Close()
	<-u.process.Ended() // the staging directory does not change any more
	cancel()
	u.requests.Wait()
	if failure := <-source; failure != nil && !stopped {
		return result{}, failure // the source's own error, not one of the image
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

// unpackerProcess is a running unpacker, as seen by the daemon.
type unpackerProcess struct {
	op      operation
	process *child.Process
	conn    *net.UnixConn
	// The daemon writes the archive, if there is one, to ours; the unpacker reads it from theirs.
	ours, theirs *os.File
	stderr       tail
	began        time.Time
	messages     int64

	slots    chan struct{} // one for each request in progress
	requests sync.WaitGroup
	mu       sync.Mutex // for writing
}

func (u *unpackerProcess) start() error {
	ours, theirs, err := socketPair()
	if err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "making a connection to the process that unpacks images: %w", err)
	}
	defer theirs.Close()
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return sandbar.Errorf(sandbar.Exhausted, "making a connection to the process that unpacks images: %w", err)
	}
	u.conn = c.(*net.UnixConn)
	if u.op.input != nil {
		if u.theirs, u.ours, err = os.Pipe(); err != nil {
			u.conn.Close()
			return sandbar.Errorf(sandbar.Exhausted, "making a pipe: %w", err)
		}
	}
	if u.process, err = child.StartOn(theirs, []string{Name}, environment(), &u.stderr); err != nil {
		u.conn.Close()
		if u.op.input != nil {
			u.theirs.Close()
			u.ours.Close()
		}
	}
	return err
}

// feed writes the archive and returns the error of its source.
func (u *unpackerProcess) feed(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	if u.op.input == nil {
		failed <- nil
		return failed
	}
	go func() {
		err := u.op.input(ctx, u.ours)
		u.ours.Close()
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, context.Canceled) {
			err = nil
		}
		failed <- err
	}()
	return failed
}

// errEnded: the connection ended before the job was done. errStop: the store already has the image.
var (
	errEnded = errors.New("the unpacking process has exited")
	errStop  = errors.New("the store has the image")
)

// talk sends the job and answers requests until the unpacker is done.
//
// The descriptor of the directory's lock goes with the job, so the lock is held as long as the
// unpacker lives. That of the archive goes with it too.
func (u *unpackerProcess) talk(ctx context.Context, lock *os.File) (*result, error) {
	files := []syscall.Conn{lock}
	if u.theirs != nil {
		files = append(files, u.theirs)
	}
	err := u.send(&message{Kind: kindJob, Job: &u.op.job}, files...)
	if u.theirs != nil {
		u.theirs.Close()
	}
	if err != nil {
		return nil, errEnded
	}
	var head [4]byte
	for {
		if _, err := io.ReadFull(u.conn, head[:]); err != nil {
			return nil, errEnded
		}
		m, err := readBody(u.conn, head[:])
		if errors.Is(err, errProtocol) {
			return nil, protocolViolation(err.Error())
		}
		if err != nil {
			return nil, errEnded
		}
		if u.messages++; u.messages > allowance(u.began) {
			return nil, protocolViolation("it sends too much")
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

// serve handles one message.
func (u *unpackerProcess) serve(ctx context.Context, m *message) error {
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
		return u.send(&message{Kind: kindAnswer, ID: m.ID})
	case m.Kind == kindDial && u.op.dial != nil, m.Kind == kindOpen && u.op.files != nil:
		select {
		case u.slots <- struct{}{}:
		default:
			return protocolViolation("it asks for too much at once")
		}
		u.requests.Go(func() {
			u.answer(ctx, m)
			<-u.slots
		})
		return nil
	}
	return protocolViolation("the message " + sandbar.Quote(m.Kind, 20) + " has no place there")
}

// answer sends the requested descriptor or an error. Errors of the send show where the unpacker's
// messages are read.
//
// For a file it sends a pipe: the holder of a file's descriptor could change the file's mode.
func (u *unpackerProcess) answer(ctx context.Context, m *message) {
	a := &message{Kind: kindAnswer, ID: m.ID}
	refuse := func(err error) {
		a.Fault = faultOf(err)
		_ = u.send(a)
	}
	if m.Kind == kindDial {
		c, err := u.op.dial(ctx, m.Text)
		if err != nil {
			refuse(err)
			return
		}
		_ = u.send(a, c.(*net.TCPConn))
		c.Close()
		return
	}
	f, err := u.op.files(m.Text)
	if err != nil {
		refuse(err)
		return
	}
	defer f.Close()
	r, w, err := os.Pipe()
	if err != nil {
		refuse(err)
		return
	}
	_ = u.send(a, r)
	r.Close()
	_, _ = io.Copy(w, f)
	w.Close()
}

// send sends a message with descriptors.
func (u *unpackerProcess) send(m *message, files ...syscall.Conn) error {
	b, err := encodeMessage(m)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	// The length is a send of its own: it is never split, so the descriptors stay attached to it.
	if err := u.sendLength(b[:4], nil, files); err != nil {
		return err
	}
	_, err = u.conn.Write(b[4:])
	return err
}

// sendLength sends the length of a message with the descriptors in fds and those of files. It keeps
// the files open meanwhile.
func (u *unpackerProcess) sendLength(length []byte, fds []int, files []syscall.Conn) error {
	if len(files) == 0 {
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		_, _, err := u.conn.WriteMsgUnix(length, rights, nil)
		return err
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = u.sendLength(length, append(fds, int(fd)), files[1:]) })
	return errors.Join(err, sent)
}

// died returns the error for an unpacker that exited before its job was done.
func (u *unpackerProcess) died() error {
	if strings.Contains(u.stderr.String(), "out of memory") {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
			Message: "unpacking the image takes more than " + size(u.op.job.Memory) + " of memory", Fix: "use another image"}
	}
	how := "without a word"
	if err := u.process.Err(); err != nil {
		how = err.Error()
	}
	return &sandbar.Error{Code: sandbar.Unavailable, Field: "image",
		Message: "the unpacking process exited before it was done (" + how + ")",
		Fix:     "try again; if it fails each time, do not use this image"}
}

// tail keeps the first bytes of an unpacker's standard error output. They are not shown to anyone,
// because they may contain anything that the unpacker knows.
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
