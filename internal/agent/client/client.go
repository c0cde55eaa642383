// Package client is the host's half of the agent: it turns a connection to an
// agent into a driver.Sandbox with files, ports and programs. A backend that
// can boot an agent and hand over a connection is complete.
//
// Over a unix socket descriptors are passed: the host makes the pipes and the
// agent gives them to the program, and files and dialled ports come back as
// descriptors, so no byte of output passes through the agent. Over any other
// connection the same calls move bytes in frames with flow control.
//
// The agent is not trusted. Its frames are bounded, and so is what it can make the host
// hold: requests without an answer, channels, bytes of a channel, descriptors of an
// answer. Descriptors are checked before use. The goroutine that reads frames never
// sends. The agent's death or a violation of the protocol ends this one sandbox, with
// every waiting caller answered (Gone, or the Outcome Lost).
package client

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Options complete a connection to a sandbox.
type Options struct {
	// Destroy kills everything in the sandbox and removes all of it. It is
	// called until it succeeds, never concurrently with itself.
	Destroy func(context.Context) error
	// Usage reads what the kernel counted for the sandbox as a whole. Nil:
	// results tell what is known of the program alone.
	Usage func() Usage
	// UsageRules: the processor time of Usage counts and not what the sandbox says
	// of a program, because it runs on a kernel of its own, which takes the time in
	// which it is held up itself for that of its programs.
	UsageRules bool
	// Enforced is repeated in every result.
	Enforced sandbar.Enforcements
	// UID and GID, as the host numbers them, own the pipes given to programs.
	// Used if ChownPipes.
	UID, GID   int
	ChownPipes bool
	// Holds: the sandbox has Linux's own way to begin an interrupted system call
	// anew, on which driver.Holder rests.
	Holds bool
}

// Usage is the kernel's account of a sandbox, counted since its creation.
type Usage struct {
	PeakMemory int64 // bytes
	CPU        time.Duration
	OOMKills   int64
}

// writeTimeout bounds the sending of one frame. Frames are small and the agent
// does nothing but read, so an agent that takes longer is lost.
const writeTimeout = 30 * time.Second

// answerTimeout bounds the wait for an answer where the caller gives no bound. An agent
// that takes longer is lost. It is far beyond the agent's own bounds.
const answerTimeout = 2 * time.Minute

// maxUnderWay is how many starts, and how many other requests, have no answer from the
// agent at once. It is half of what the agent queues; a caller beyond it waits. A request
// that its caller gave up counts until the answer comes.
const maxUnderWay = 128

// Sandbox is a sandbox with an agent in it.
type Sandbox struct {
	conn net.Conn
	opt  Options
	dead chan struct{} // closed when the connection has ended

	writing chan struct{} // taken by who writes
	out     []byte        // guarded by writing
	dues    dues

	mu       sync.Mutex
	lastID   uint32
	wrapped  bool // every id has been issued
	pending  map[uint32]*call
	running  map[uint32]*process
	channels map[uint32]*channels
	ended    bool // the connection is no longer usable

	slots map[wire.Type]chan struct{} // requests without an answer

	destroyMu sync.Mutex
	destroyed bool
	readers   sync.WaitGroup
}

// call is a request that waits for its Reply.
type call struct {
	done      chan response // room for one
	abandoned bool          // the caller is gone; undo cleans up a late success
	undo      func(response)
	takes     int           // the most descriptors that a Reply may have that is OK
	slot      chan struct{} // given back when the Reply arrives
	process   *process      // of a Start: running from the moment the Reply arrives
	channels  *channels     // open from the moment the Reply arrives
}

type response struct {
	wire.Reply
	fds []int
	err error
}

var (
	_ driver.Sandbox = (*Sandbox)(nil)
	_ driver.Filer   = (*Sandbox)(nil)
	_ driver.Dialer  = (*Sandbox)(nil)
	_ driver.Watcher = (*Sandbox)(nil)
	_ driver.Meter   = (*Sandbox)(nil)
)

// New takes over conn, waits for the agent's Hello and returns the sandbox. If
// it fails, conn is closed and the backend must clean up.
func New(ctx context.Context, conn net.Conn, opt Options) (*Sandbox, error) {
	s := &Sandbox{
		conn: conn, opt: opt, dead: make(chan struct{}),
		writing: make(chan struct{}, 1), dues: dues{wakes: make(chan struct{}, 1)},
		pending: map[uint32]*call{}, running: map[uint32]*process{}, channels: map[uint32]*channels{},
	}
	slots := func() chan struct{} { return make(chan struct{}, maxUnderWay) }
	work, rest := slots(), slots()
	s.slots = map[wire.Type]chan struct{}{wire.TypeStart: slots(), wire.TypeKill: slots(), wire.TypeFS: work, wire.TypeDial: work,
		wire.TypeSetup: rest, wire.TypeAdoptAttrs: rest, wire.TypeAdopt: rest}
	if err := s.hello(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	s.readers.Add(1)
	go s.read()
	if !canPass(conn) {
		s.readers.Add(1)
		go s.pay()
	}
	return s, nil
}

func (s *Sandbox) hello(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })
	err := readHello(s.conn)
	if !stop() && ctx.Err() != nil {
		return sandbar.Errorf(ctxCode(ctx), "waiting for the agent: %w", ctx.Err())
	}
	return err
}

// readHello reads what the other side says first.
func readHello(conn net.Conn) error {
	f, err := readFrame(conn)
	if err != nil {
		return sandbar.Errorf(sandbar.Internal, "the agent did not start: %w", err)
	}
	closeFDs(f.FDs)
	var failed wire.Reply
	if f.Type == wire.TypeReply && failed.Decode(f.Payload) == nil && failed.Failure == wire.FailSetup {
		cause := errnoOf(failed.Errno)
		return forbidden(sandbar.Errorf(sandbar.Unsupported, "the sandbox could not be built: %s: %w", said(failed.Text), cause), cause)
	}
	var h wire.Hello
	if f.Type != wire.TypeHello || h.Decode(f.Payload) != nil {
		return sandbar.Errorf(sandbar.Internal, "the agent does not speak the agent's protocol")
	}
	if h.Generation != wire.Generation {
		return sandbar.Errorf(sandbar.Internal, "the agent speaks generation %d of the protocol and this host %d", h.Generation, wire.Generation)
	}
	return nil
}

// Prepare tells a stage, at the other end of conn, what to build and which runtime
// to become. Whether it could is told by New, which waits for the agent that the
// runtime starts. fds are the runtime's program, its standard error output and the
// mounts that the plan attaches; they remain the caller's.
func Prepare(conn net.Conn, s *wire.Stage, fds ...int) error {
	payload := s.Append(nil)
	if len(payload) > wire.MaxPayload {
		return sandbar.Errorf(sandbar.TooLarge, "the plan of the sandbox has %d bytes; at most %d are possible", len(payload), wire.MaxPayload)
	}
	b := wire.AppendHeader(nil, wire.Header{Length: uint32(len(payload)), Type: wire.TypeSetup, FDs: uint8(len(fds))})
	conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := writeWithFDs(conn, append(b, payload...), fds); err != nil {
		return sandbar.Errorf(sandbar.Internal, "the stage has ended: %w", err)
	}
	return nil
}

// Setup has the agent build its sandbox and returns how many threads the agent
// has: they count wherever processes are limited. fds are the mounts that the
// plan attaches; they remain the caller's. tun is the descriptor of the device
// that the agent has made for the plan's Interface, -1 if it was to make none; it
// becomes the caller's. The error names the step.
func (s *Sandbox) Setup(ctx context.Context, setup *wire.Setup, fds ...int) (threads, tun int, err error) {
	wanted := 0
	if setup.Interface.Name != "" && setup.Interface.Device != "" {
		wanted = 1
	}
	r, err := s.request(ctx, wire.TypeSetup, setup.Append(nil), fds, &call{takes: wanted})
	if err != nil {
		return 0, -1, err
	}
	if r.Failure != wire.OK {
		cause := errnoOf(r.Errno)
		return 0, -1, forbidden(sandbar.Errorf(sandbar.Unsupported, "the sandbox could not be built: %s: %w", said(r.Text), cause), cause)
	}
	n, _, err := wire.DecodeHandle(r.Data)
	if err != nil || n > maxThreads || len(r.fds) != wanted || wanted == 1 && !isTun(r.fds[0]) {
		closeFDs(r.fds)
		return 0, -1, s.violated("building the sandbox")
	}
	if wanted == 1 {
		return int(n), r.fds[0], nil
	}
	return int(n), -1, nil
}

// maxThreads bounds how many threads an agent may say it has: the limit of processes is
// raised by them. It has about ten.
const maxThreads = 256

// Dead is closed when the sandbox can run nothing any more.
func (s *Sandbox) Dead() <-chan struct{} { return s.dead }

// Destroy kills everything in the sandbox and removes all of it.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.destroyMu.Lock()
	defer s.destroyMu.Unlock()
	if s.destroyed {
		return nil
	}
	s.refuse()
	if err := s.opt.Destroy(ctx); err != nil {
		return err
	}
	s.conn.Close()
	s.readers.Wait()
	s.writing <- struct{}{} // for ever: nothing is written any more
	s.destroyed = true
	return nil
}

// refuse makes every further request fail with Gone.
func (s *Sandbox) refuse() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// errGone is the answer of a sandbox that has ended.
func errGone() error {
	return &sandbar.Error{Code: sandbar.Gone, Message: "the sandbox has ended", Fix: "create a new one"}
}

// send writes one frame, which takes at most writeTimeout from the moment that the frames
// before it are written. It waits for those as long as ctx allows.
func (s *Sandbox) send(ctx context.Context, f wire.Frame) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-s.dead:
		return errGone()
	case <-ctx.Done():
		return sandbar.Errorf(ctxCode(ctx), "waiting for the sandbox: %w", ctx.Err())
	}
	s.out = wire.AppendHeader(s.out[:0], wire.Header{
		Length: uint32(len(f.Payload)), Type: f.Type, FDs: uint8(len(f.FDs)), ID: f.ID})
	s.out = append(s.out, f.Payload...)
	s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := writeWithFDs(s.conn, s.out, f.FDs)
	if cap(s.out) > 64<<10 {
		s.out = nil
	}
	if err != nil {
		s.conn.Close() // a frame cut short cannot be mended
		return errGone()
	}
	return nil
}

// request sends a frame and waits for its Reply, or for ctx.
func (s *Sandbox) request(ctx context.Context, t wire.Type, payload []byte, fds []int, c *call) (response, error) {
	c.done = make(chan response, 1)
	if ctx.Err() != nil {
		return response{}, sandbar.Errorf(ctxCode(ctx), "not begun: %w", ctx.Err())
	}
	if len(payload) > wire.MaxPayload {
		return response{}, sandbar.Errorf(sandbar.TooLarge, "the request to the sandbox has %d bytes; at most %d are possible", len(payload), wire.MaxPayload)
	}
	c.slot = s.slots[t]
	select {
	case c.slot <- struct{}{}:
	case <-s.dead:
		return response{}, errGone()
	case <-ctx.Done():
		return response{}, sandbar.Errorf(ctxCode(ctx), "waiting for the sandbox: %w", ctx.Err())
	}
	id, err := s.register(c)
	if err != nil {
		<-c.slot
		return response{}, err
	}
	if err := s.send(ctx, wire.Frame{Type: t, ID: id, Payload: payload, FDs: fds}); err != nil {
		return response{}, s.forget(id, c, err)
	}
	select {
	case r := <-c.done:
		return r, r.err
	case <-ctx.Done():
		return s.abandon(ctx, c)
	}
}

// insist is request for callers that give no bound.
func (s *Sandbox) insist(t wire.Type, payload []byte, c *call) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	r, err := s.request(ctx, t, payload, nil, c)
	if err != nil && ctx.Err() != nil {
		s.conn.Close()
	}
	return r, err
}

// register gives a call its id.
func (s *Sandbox) register(c *call) (id uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, errGone()
	}
	if c.process != nil {
		c.channels = c.process.channels
	}
	if c.channels != nil && len(s.channels) >= maxChannels {
		return 0, &sandbar.Error{Code: sandbar.Exhausted, Message: "the sandbox has " + strconv.Itoa(maxChannels) + " programs and connections whose streams are open; more are not possible",
			Fix: "end some, or create a new sandbox"}
	}
	id = s.newID()
	s.pending[id] = c
	if c.process != nil {
		c.process.id = id
	}
	if c.channels != nil {
		c.channels.id = id
	}
	return id, nil
}

// abandon gives up on a call. A success that comes too late is undone.
func (s *Sandbox) abandon(ctx context.Context, c *call) (response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case r := <-c.done:
		return r, r.err // it was in time after all
	default:
	}
	c.abandoned = true
	return response{}, sandbar.Errorf(ctxCode(ctx), "waiting for the sandbox: %w", ctx.Err())
}

func ctxCode(ctx context.Context) sandbar.Code {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return sandbar.Timeout
	}
	return sandbar.Canceled
}

// forget gives up a request that could not be sent. An answer to it is a violation.
func (s *Sandbox) forget(id uint32, c *call, err error) error {
	s.mu.Lock()
	waits := s.pending[id] == c
	delete(s.pending, id)
	s.mu.Unlock()
	if waits {
		<-c.slot
		return err
	}
	r := <-c.done
	closeFDs(r.fds)
	s.conn.Close()
	return err
}

// issued reports whether id has been that of a request. The caller holds mu.
func (s *Sandbox) issued(id uint32) bool { return s.wrapped || id != 0 && id <= s.lastID }

// newID returns an id that is not in use. The caller holds mu.
func (s *Sandbox) newID() uint32 {
	for {
		s.lastID++
		id := s.lastID
		if id == 0 {
			s.wrapped = true
			continue
		}
		if s.pending[id] == nil && s.running[id] == nil && s.channels[id] == nil {
			return id
		}
	}
}

// read handles the agent's frames until the connection ends.
func (s *Sandbox) read() {
	defer s.readers.Done()
	for {
		f, err := readFrame(s.conn)
		if err == nil {
			err = s.dispatch(f)
		}
		if err != nil {
			break
		}
	}
	s.conn.Close()
	s.lose()
}

var errViolation = errors.New("the agent broke the protocol")

// violated ends the sandbox, whose agent has answered what it must not.
func (s *Sandbox) violated(doing string) error {
	s.conn.Close()
	return sandbar.Errorf(sandbar.Internal, "%s: %w", doing, errViolation)
}

// said is a text of the agent's, safe to print and short.
func said(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !strconv.IsGraphic(r) {
			return '?'
		}
		return r
	}, text)
}

// dispatch handles one frame. It never waits for the agent: an agent that sends and does
// not read would hold it for ever.
func (s *Sandbox) dispatch(f wire.Frame) error {
	if f.Type == wire.TypeReply {
		return s.onReply(f)
	}
	closeFDs(f.FDs)
	switch f.Type {
	case wire.TypeExited:
		return s.onExited(f)
	case wire.TypeData, wire.TypeCredit, wire.TypeClose:
		return s.onChannel(f)
	}
	return errViolation
}

func (s *Sandbox) onReply(f wire.Frame) error {
	r := response{fds: f.FDs}
	err := r.Decode(f.Payload)
	s.mu.Lock()
	c := s.pending[f.ID]
	if err != nil || c == nil || len(r.fds) > c.takes || r.Failure != wire.OK && len(r.fds) > 0 {
		s.mu.Unlock()
		closeFDs(r.fds)
		return errViolation
	}
	delete(s.pending, f.ID)
	<-c.slot
	if c.process != nil && r.Failure == wire.OK {
		c.process.started = time.Now()
		s.running[f.ID] = c.process
	}
	if c.channels != nil && r.Failure == wire.OK {
		s.channels[f.ID] = c.channels
	}
	late := c.abandoned
	if !late {
		c.done <- r
	}
	s.mu.Unlock()
	if late {
		closeFDs(r.fds)
		if c.undo != nil && r.Failure == wire.OK {
			c.undo(r)
		}
	}
	return nil
}

// lose answers everybody who waits: the connection has ended.
func (s *Sandbox) lose() {
	s.mu.Lock()
	s.ended = true
	pending, running, channels := s.pending, s.running, s.channels
	s.pending, s.running, s.channels = map[uint32]*call{}, map[uint32]*process{}, nil
	for _, c := range pending {
		c.done <- response{err: errGone()}
	}
	s.mu.Unlock()
	for _, c := range channels {
		c.lose()
	}
	for _, p := range running {
		p.lost()
	}
	close(s.dead)
}
