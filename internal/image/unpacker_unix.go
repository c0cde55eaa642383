//go:build unix

package image

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/confine"
)

// serve runs an unpacker: it receives a job, confines itself, does the job and sends the result. It
// returns the exit code.
func serve(work func(context.Context, *job, daemon, *os.Root, io.Reader) (*result, error)) int {
	if err := unix.SetNonblock(0, true); err != nil {
		return 1
	}
	l := &daemonConn{f: os.NewFile(0, "daemon"), waiting: map[uint32]chan answer{}}
	first, files, err := l.read() // the lock, and the archive if there is one
	if err != nil || first.Job == nil || len(files) == 0 {
		return 1
	}
	var input io.Reader
	if len(files) > 1 {
		input = files[1]
	}
	r, err := l.prepare(first.Job, input, work)
	runtime.KeepAlive(files) // the only reference to the lock's file
	m := &message{Kind: kindDone, Result: r}
	if err != nil {
		m.Result, m.Fault = nil, faultOf(failed(doing(first.Job), err))
	}
	if err := l.write(m); err != nil {
		if _, ok := errors.AsType[*sandbar.Error](err); !ok {
			return 1
		}
		_ = l.write(&message{Kind: kindDone, Fault: faultOf(err)})
	}
	return 0
}

// doing describes a job, for errors.
func doing(j *job) string {
	if j.Kind == jobPull {
		return "pulling " + j.Reference
	}
	return "importing an image"
}

// prepare opens the job's files before it confines the process, and then does the job.
func (l *daemonConn) prepare(j *job, input io.Reader, work func(context.Context, *job, daemon, *os.Root, io.Reader) (*result, error)) (*result, error) {
	top, err := os.OpenRoot(j.Dir)
	if err != nil {
		return nil, err
	}
	if j.Kind == jobPull {
		for name, value := range j.Proxy {
			if err := os.Setenv(name, value); err != nil {
				return nil, err
			}
		}
		// caches the certificates; on failure TLS reports the missing ones
		_, _ = x509.SystemCertPool()
	}
	_ = time.Now().Local() // loads the host's time zone
	debug.SetMemoryLimit(j.Memory / 2)
	if err := confine.Unpacker(j.Dir, j.Memory, j.Limits.Bytes); err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "confining the process that unpacks images: %w", err)
	}
	go l.listen()
	return work(context.Background(), j, l, top, input)
}

// daemonConn is an unpacker's connection to the daemon.
type daemonConn struct {
	f *os.File

	mu      sync.Mutex // guards writing and the fields below
	last    uint32
	waiting map[uint32]chan answer
}

// answer is the daemon's answer to a request.
type answer struct {
	file *os.File // nil: none
	err  error
}

var _ daemon = (*daemonConn)(nil)

// listen distributes answers to the waiting requests. The unpacker exits with the connection.
func (l *daemonConn) listen() {
	for {
		m, f, err := l.read()
		if err != nil || m.Kind != kindAnswer {
			os.Exit(1)
		}
		a := answer{}
		if len(f) > 0 {
			a.file = f[0]
		}
		if m.Fault != nil {
			a.err = m.Fault.err()
		}
		l.mu.Lock()
		to := l.waiting[m.ID]
		delete(l.waiting, m.ID)
		l.mu.Unlock()
		if to == nil {
			os.Exit(1)
		}
		to <- a
	}
}

// maxFiles is the most descriptors of one message.
const maxFiles = 2

// read reads a message with its descriptors.
func (l *daemonConn) read() (*message, []*os.File, error) {
	head, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(4*maxFiles))
	raw, err := l.f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	n, oob := 0, 0
	waited := raw.Read(func(fd uintptr) bool {
		for {
			n, oob, _, _, err = unix.Recvmsg(int(fd), head, rights, receiveFlags)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	switch {
	case waited != nil:
		return nil, nil, waited
	case err != nil:
		return nil, nil, err
	case n != len(head):
		return nil, nil, io.ErrUnexpectedEOF
	}
	f, err := received(rights[:oob])
	if err != nil {
		return nil, nil, err
	}
	m, err := readBody(l.f, head)
	return m, f, err
}

// received returns the descriptors of a control message.
func received(rights []byte) (files []*os.File, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, errProtocol
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "received"))
	}
	return files, err
}

func (l *daemonConn) write(m *message) error {
	b, err := encodeMessage(m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.f.Write(b)
	return err
}

// request sends a request and waits for its answer. A descriptor that arrives after ctx has ended
// is closed.
func (l *daemonConn) request(ctx context.Context, m *message) (*os.File, error) {
	to := make(chan answer, 1)
	l.mu.Lock()
	l.last++
	m.ID = l.last
	l.waiting[m.ID] = to
	l.mu.Unlock()
	if err := l.write(m); err != nil {
		return nil, err
	}
	select {
	case a := <-to:
		return a.file, a.err
	case <-ctx.Done():
		go func() {
			if a := <-to; a.file != nil {
				a.file.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func (l *daemonConn) dial(ctx context.Context, addr string) (net.Conn, error) {
	f, err := l.request(ctx, &message{Kind: kindDial, Text: addr})
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, errProtocol
	}
	return socket{f}, nil
}

func (l *daemonConn) open(name string) (*os.File, error) {
	f, err := l.request(context.Background(), &message{Kind: kindOpen, Text: name})
	if err == nil && f == nil {
		err = errProtocol
	}
	return f, err
}

func (l *daemonConn) known(id, manifest string) error {
	_, err := l.request(context.Background(), &message{Kind: kindKnown, Text: id, Manifest: manifest})
	return err
}

func (l *daemonConn) progress(p Progress) { _ = l.write(&message{Kind: kindProgress, Progress: &p}) }

// socket is a connection that the daemon has opened. Package net would make system calls on it that
// the unpacker's seccomp filter forbids.
type socket struct{ *os.File }

func (s socket) Read(p []byte) (int, error)  { return s.explain("read")(s.File.Read(p)) }
func (s socket) Write(p []byte) (int, error) { return s.explain("write")(s.File.Write(p)) }

// explain converts errors of files to those of connections.
func (s socket) explain(op string) func(int, error) (int, error) {
	return func(n int, err error) (int, error) {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = &net.OpError{Op: op, Net: "tcp", Err: e.Err}
		}
		return n, err
	}
}

func (socket) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (socket) RemoteAddr() net.Addr { return &net.TCPAddr{} }
