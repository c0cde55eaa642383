// Package client is the host's half of the agent: it turns a connection to an agent into a
// driver.Sandbox with files, ports and programs. A driver needs only to start an agent and pass its
// connection to New.
//
// Over a UNIX socket, descriptors are passed: the host creates a program's pipes and the agent
// gives them to the program; files and dialled ports come back as descriptors. No byte of output
// passes through the agent. Over any other connection the same calls move bytes in frames with flow
// control.
//
// The agent is not trusted. The client bounds its frames, and all host resources that it can
// occupy: unanswered requests, channels, bytes per channel, descriptors per Reply. It checks
// descriptors before use. The frame-reader goroutine never sends, so an agent that does not read
// cannot block it. The end of the connection or a protocol violation ends this one sandbox: every
// pending call fails with Gone, every running program has the outcome Lost.
package client

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

// Options are what a driver adds to a connection to get a sandbox.
type Options struct {
	// Destroy kills every process of the sandbox and removes its resources. The client calls it
	// until it succeeds, never concurrently.
	Destroy func(context.Context) error
	// Usage reads the kernel's counters of the whole sandbox. If nil, a result has only the
	// counters of its program.
	Usage func() Usage
	// Use measures the whole sandbox. If nil, Measure is Unsupported.
	Use func() (driver.Use, error)
	// Explain returns why the sandbox has died. The client calls it once, after the connection has
	// ended and if Destroy was not called. Until it returns, neither Dead nor any program reports
	// the end, so it must have a bound, and return soon after a call of Destroy above. Default: no
	// reason is known.
	Explain func() Death
	// Restrict implements driver.Restricter. If nil, the sandbox has no network that can be
	// restricted.
	Restrict func(sandbar.Egress) error
	// UsageOnly makes Usage the only source of CPU time. It is for sandboxes with a kernel of their
	// own (gVisor), which charges to its programs the time in which the host has not scheduled it.
	UsageOnly bool
	// CPUs, if not 0, is the limit of processors that holds the sandbox from outside. CPU times are
	// cut to it. It is for a kernel as with UsageOnly, if nothing else counts.
	CPUs float64
	// Enforced is copied into every result.
	Enforced sandbar.Enforcements
	// UID and GID own the pipes of programs, as host ids, if ChownPipes is set.
	UID, GID   int
	ChownPipes bool
	// Blocks: the sandbox runs on Linux, which restarts an interrupted open(2) from the
	// file's name (signal(7), SA_RESTART). StartBlocked needs that.
	Blocks bool
	// NoWatch: the agent cannot watch files.
	NoWatch bool
	// Restored: the agent is in a machine that was restored from a snapshot, and has sent its Hello
	// before. It has no request in progress, or those of a host that is gone.
	Restored bool
	// FirstID, if not 0, is the id of the first request; see Suspend.
	FirstID uint32
	// Carried is the program that ran when the machine was saved, if there was one. Its streams are
	// connected to CarriedStdio.
	Carried      *Carried
	CarriedStdio driver.Stdio
}

// Death is why a sandbox has died by itself.
type Death struct {
	Err         error // with the code Gone, its message completes "the sandbox has ended: "; nil if unknown
	OutOfMemory bool  // the whole sandbox was killed for memory
}

// Usage has the kernel's counters of a sandbox since its creation.
type Usage struct {
	PeakMemory int64 // bytes
	CPU        time.Duration
	OOMKills   int64
}

// writeTimeout bounds the write of one frame. The agent's reader goroutine does nothing else, so
// the connection of an agent that takes longer is closed.
const writeTimeout = 30 * time.Second

// answerTimeout bounds the wait for a Reply if the caller's context has no deadline. After it the
// connection is closed. It is far beyond the agent's own bounds.
const answerTimeout = 2 * time.Minute

// maxPending bounds the unanswered requests of each kind: half of the agent's queue. Further
// callers wait. A request whose caller has given up counts until its Reply arrives.
const maxPending = 128

// Sandbox is a sandbox with an agent in it.
type Sandbox struct {
	conn net.Conn
	opt  Options
	dead chan struct{} // closed after the connection has ended

	death atomic.Pointer[Death] // set before dead is closed, unless the sandbox was destroyed

	writing chan struct{} // a lock, held by the goroutine that writes
	out     []byte        // guarded by writing
	toSend  sendQueue
	sender  sync.Once // starts sendQueued, when there are channels

	mu       sync.Mutex
	lastID   uint32
	wrapped  bool // every id has been used once
	pending  map[uint32]*call
	running  map[uint32]*process
	channels map[uint32]*channels
	ended    bool // the connection cannot be used any more

	slots map[wire.Type]chan struct{} // semaphores of unanswered requests

	carried   *process // of Options.Carried
	destroyMu sync.Mutex
	destroyed bool
	readers   sync.WaitGroup
}

// call is a request without a Reply yet.
type call struct {
	done      chan response // room for one
	abandoned bool          // the caller has given up; undo cleans up a late success
	undo      func(response)
	maxFDs    int           // the most descriptors that a successful Reply may have
	slot      chan struct{} // semaphore that the Reply releases
	process   *process      // of a Start: in running as soon as the Reply arrives
	channels  *channels     // open as soon as the Reply arrives
}

type response struct {
	wire.Reply
	fds []int
	err error
}

var (
	_ driver.Sandbox    = (*Sandbox)(nil)
	_ driver.Dialer     = (*Sandbox)(nil)
	_ driver.Watcher    = (*Sandbox)(nil)
	_ driver.Explainer  = (*Sandbox)(nil)
	_ driver.PeakMemory = (*Sandbox)(nil)
	_ driver.Restricter = (*Sandbox)(nil)
)

// New takes ownership of conn, waits for the agent's Hello and returns the sandbox. On failure it
// closes conn, and the driver must clean up the rest.
func New(ctx context.Context, conn net.Conn, opt Options) (*Sandbox, error) {
	s := &Sandbox{
		conn: conn, opt: opt, dead: make(chan struct{}),
		writing: make(chan struct{}, 1), toSend: sendQueue{wake: make(chan struct{}, 1)},
		pending: map[uint32]*call{}, running: map[uint32]*process{}, channels: map[uint32]*channels{},
	}
	slots := func() chan struct{} { return make(chan struct{}, maxPending) }
	work, rest := slots(), slots()
	s.slots = map[wire.Type]chan struct{}{wire.TypeStart: slots(), wire.TypeKill: slots(), wire.TypeFS: work, wire.TypeDial: work,
		wire.TypeSetup: rest, wire.TypeAdoptAttrs: rest, wire.TypeAdopt: rest, wire.TypeRelease: work, wire.TypeWatch: work, wire.TypeRenew: rest,
		wire.TypeClock: rest, wire.TypeSuspend: rest, wire.TypeResume: rest, wire.TypeSaveFiles: rest}
	if opt.FirstID > 0 {
		s.lastID = opt.FirstID - 1
	}
	if !opt.Restored {
		if err := s.hello(ctx); err != nil {
			conn.Close()
			return nil, err
		}
	}
	if opt.Carried != nil {
		if err := s.carryOn(*opt.Carried, opt.CarriedStdio); err != nil {
			conn.Close()
			return nil, err
		}
	}
	s.readers.Add(1)
	go s.read()
	return s, nil
}

func (s *Sandbox) hello(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })
	err := readHello(s.conn)
	if !stop() && ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the agent: %w", ctx.Err())
	}
	return err
}

// readHello reads the first frame of an agent or a spawner.
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
		return sandbar.Errorf(sandbar.Internal, "the agent's first frame is not a Hello")
	}
	if h.Generation != wire.Generation {
		return sandbar.Errorf(sandbar.Internal, "the agent speaks generation %d of the protocol and this host %d", h.Generation, wire.Generation)
	}
	return nil
}

// Prepare sends a stage, at the other end of conn, its plan. It does not wait for the result: New
// does, because it reads either the Hello of the agent that the runtime starts or the stage's
// error. fds are the runtime's executable, its standard error output and the detached mounts of the
// plan; the caller keeps them.
func Prepare(conn net.Conn, s *wire.Stage, fds ...int) error {
	payload := s.Append(nil)
	if len(payload) > wire.MaxPayload {
		return sandbar.Errorf(sandbar.TooLarge, "the plan of the sandbox has %d bytes; at most %d are possible", len(payload), wire.MaxPayload)
	}
	b := wire.AppendHeader(nil, wire.Header{Length: uint32(len(payload)), Type: wire.TypeSetup, FDs: uint8(len(fds))})
	conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := writeWithFDs(conn, append(b, payload...), fds); err != nil {
		return sandbar.Errorf(sandbar.Internal, "the stage has exited: %w", err)
	}
	return nil
}

// Setup makes the agent build its sandbox. It returns the number of the agent's threads, which
// count towards every process limit, and the descriptor of the TUN device if the agent created one
// for the plan's Interface (-1 if not), which the caller owns. fds are the detached mounts of the
// plan; the caller keeps them. An error names the step that failed.
func (s *Sandbox) Setup(ctx context.Context, setup *wire.Setup, fds ...int) (threads, tun int, err error) {
	wanted := 0
	if setup.Interface.Name != "" && setup.Interface.Device != "" {
		wanted = 1
	}
	r, err := s.request(ctx, wire.TypeSetup, setup.Append(nil), fds, &call{maxFDs: wanted})
	if err != nil {
		return 0, -1, err
	}
	return s.setUp(r, wanted)
}

// setUp returns the result of a Setup whose Reply must have wanted descriptors.
func (s *Sandbox) setUp(r response, wanted int) (threads, tun int, err error) {
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

// maxThreads bounds the number of threads that an agent may report, because the process limit is
// raised by it. A real agent has about ten.
const maxThreads = 256

// Dead is closed when the sandbox cannot run programs any more.
func (s *Sandbox) Dead() <-chan struct{} { return s.dead }

// Death returns why the sandbox died by itself, nil if it did not or if the reason is unknown.
func (s *Sandbox) Death() error {
	if d := s.death.Load(); d != nil {
		return d.Err
	}
	return nil
}

// gone is the error of all calls after the sandbox has ended.
func (s *Sandbox) gone() error {
	err := s.Death()
	if err == nil {
		return errGone()
	}
	e := *sandbar.AsError(err)
	e.Message = "the sandbox has ended: " + e.Message
	return &e
}

// Destroy kills every process of the sandbox and removes its resources.
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
	s.writing <- struct{}{} // never released: nothing may be written any more
	s.destroyed = true
	return nil
}

// refuse makes all further requests fail with Gone.
func (s *Sandbox) refuse() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// errGone is the error for a sandbox that has ended for no known reason.
func errGone() error {
	return &sandbar.Error{Code: sandbar.Gone, Message: "the sandbox has ended", Fix: "create a new one"}
}

// background runs f in a goroutine that Destroy waits for. It does nothing after the
// sandbox has ended.
func (s *Sandbox) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended { // refuse comes before Wait, and no Add may come after it
		s.readers.Go(f)
	}
}

// hasEnded reports whether the connection has ended.
func (s *Sandbox) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// send writes one frame. It waits for its turn until ctx ends, and then at most writeTimeout for
// the write.
func (s *Sandbox) send(ctx context.Context, f wire.Frame) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-s.dead:
		return s.gone()
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the sandbox: %w", ctx.Err())
	}
	return s.write(f)
}

// write writes one frame. The caller holds writing.
func (s *Sandbox) write(f wire.Frame) error {
	s.out = wire.AppendHeader(s.out[:0], wire.Header{
		Length: uint32(len(f.Payload)), Type: f.Type, FDs: uint8(len(f.FDs)), ID: f.ID})
	s.out = append(s.out, f.Payload...)
	s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := writeWithFDs(s.conn, s.out, f.FDs)
	if cap(s.out) > 64<<10 {
		s.out = nil
	}
	if err != nil {
		s.conn.Close() // a partial frame cannot be completed
		return s.gone()
	}
	return nil
}

// request sends a frame and waits for its Reply or the end of ctx.
func (s *Sandbox) request(ctx context.Context, t wire.Type, payload []byte, fds []int, c *call) (response, error) {
	if err := s.ask(ctx, t, payload, fds, c); err != nil {
		return response{}, err
	}
	return s.answer(ctx, c)
}

// ask sends a frame. If it succeeds, answer must be called.
func (s *Sandbox) ask(ctx context.Context, t wire.Type, payload []byte, fds []int, c *call) error {
	c.done = make(chan response, 1)
	if ctx.Err() != nil {
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "not started: %w", ctx.Err())
	}
	if len(payload) > wire.MaxPayload {
		return sandbar.Errorf(sandbar.TooLarge, "the request to the sandbox has %d bytes; at most %d are possible", len(payload), wire.MaxPayload)
	}
	c.slot = s.slots[t]
	select {
	case c.slot <- struct{}{}:
	case <-s.dead:
		return s.gone()
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the sandbox: %w", ctx.Err())
	}
	id, err := s.register(c)
	if err != nil {
		<-c.slot
		return err
	}
	if err := s.send(ctx, wire.Frame{Type: t, ID: id, Payload: payload, FDs: fds}); err != nil {
		return s.forget(id, c, err)
	}
	return nil
}

// answer waits for the Reply to a call of ask or the end of ctx.
func (s *Sandbox) answer(ctx context.Context, c *call) (response, error) {
	select {
	case r := <-c.done:
		return r, r.err
	case <-ctx.Done():
		return s.abandon(ctx, c)
	}
}

// requestWithTimeout is request with answerTimeout, for callers without a deadline.
func (s *Sandbox) requestWithTimeout(t wire.Type, payload []byte, c *call) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	r, err := s.request(ctx, t, payload, nil, c)
	if err != nil && ctx.Err() != nil {
		s.conn.Close()
	}
	return r, err
}

// register gives a call an id and enters it into the table.
func (s *Sandbox) register(c *call) (id uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, s.gone()
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

// abandon gives up a call after ctx has ended. If its Reply succeeds later, undo runs.
func (s *Sandbox) abandon(ctx context.Context, c *call) (response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case r := <-c.done:
		return r, r.err // the Reply arrived at the same time
	default:
	}
	c.abandoned = true
	return response{}, sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the sandbox: %w", ctx.Err())
}

// forget removes a request that could not be sent. If it has an answer all the same, the agent has
// invented it: a violation.
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

// issued reports whether a request has had this id. The caller holds mu.
func (s *Sandbox) issued(id uint32) bool { return s.wrapped || id != 0 && id <= s.lastID }

// newID returns an unused id. The caller holds mu.
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

var errViolation = errors.New("the agent violated the protocol")

// violated closes the connection after an impossible answer of the agent.
func (s *Sandbox) violated(doing string) error {
	s.conn.Close()
	return sandbar.Errorf(sandbar.Internal, "%s: %w", doing, errViolation)
}

// said returns a text from the agent, cut to 200 bytes and without control characters.
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

// dispatch handles one frame. It never blocks on the agent: an agent that sends but does not read
// would block it for ever.
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
	if err != nil || c == nil || len(r.fds) > c.maxFDs || r.Failure != wire.OK && len(r.fds) > 0 {
		s.mu.Unlock()
		closeFDs(r.fds)
		return errViolation
	}
	delete(s.pending, f.ID)
	<-c.slot
	if c.process != nil && r.Failure == wire.OK {
		// The reply may arrive after the program has ended, so the clock starts with the request.
		c.process.started = c.process.asked
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

// lose fails every pending call and ends every program, after the connection has ended.
func (s *Sandbox) lose() {
	s.mu.Lock()
	byItself := !s.ended
	s.ended = true
	s.mu.Unlock()
	if byItself && s.opt.Explain != nil {
		d := s.opt.Explain()
		s.death.Store(&d)
	}
	s.mu.Lock()
	pending, running, channels := s.pending, s.running, s.channels
	s.pending, s.running, s.channels = map[uint32]*call{}, map[uint32]*process{}, nil
	for _, c := range pending {
		c.done <- response{err: s.gone()}
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
