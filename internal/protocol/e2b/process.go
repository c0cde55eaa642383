package e2b

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

const (
	// keepEnded is how long the end of a process can be read, and maxEnded how many of them.
	keepEnded = 30 * time.Second
	maxEnded  = 64
	// maxInput bounds input that a program has not read, in bytes.
	maxInput = 1 << 20
	// queued is the number of pieces of output that wait for one client.
	queued = 4
	// firstUnknown is the first process id for processes whose own id the driver does not know.
	firstUnknown = 1 << 24

	exitNotExecutable = 126
	exitNotFound      = 127

	sigkill, sigterm = 9, 15
)

// The messages of process.Process.
type (
	processConfig struct {
		Cmd  string            `json:"cmd"`
		Args []string          `json:"args,omitempty"`
		Envs map[string]string `json:"envs,omitempty"`
		Cwd  string            `json:"cwd,omitempty"`
	}
	terminal struct {
		Size struct {
			Cols int `json:"cols"`
			Rows int `json:"rows"`
		} `json:"size"`
	}
	startRequest struct {
		Process processConfig `json:"process"`
		PTY     *terminal     `json:"pty"`
		Tag     *string       `json:"tag"`
		Stdin   *bool         `json:"stdin"` // nil is true
	}
	// selector names a process.
	selector struct {
		PID *int    `json:"pid"`
		Tag *string `json:"tag"`
	}
	selectRequest struct {
		Process selector `json:"process"`
	}
	inputData struct {
		Input struct {
			Stdin []byte `json:"stdin"`
			PTY   []byte `json:"pty"`
		} `json:"input"`
	}
	inputRequest struct {
		selectRequest
		inputData
	}
	// streamInputRequest is one message of a stream of input. The first one has start, the others
	// data, or nothing.
	streamInputRequest struct {
		Start *selectRequest `json:"start"`
		Data  *inputData     `json:"data"`
	}
	signalRequest struct {
		selectRequest
		Signal string `json:"signal"`
	}
	updateRequest struct {
		selectRequest
		PTY *terminal `json:"pty"`
	}
	processInfo struct {
		Config processConfig `json:"config"`
		PID    int           `json:"pid"`
		Tag    *string       `json:"tag,omitempty"`
	}
	processList struct {
		Processes []processInfo `json:"processes,omitempty"`
	}
	// processEvent is one message of a stream. Exactly one member is set.
	processEvent struct {
		Start     *startEvent `json:"start,omitempty"`
		Data      *dataEvent  `json:"data,omitempty"`
		Keepalive *none       `json:"keepalive,omitempty"`
		End       *endEvent   `json:"end,omitempty"`
	}
	processMessage struct {
		Event processEvent `json:"event"`
	}
	startEvent struct {
		PID int `json:"pid"`
	}
	dataEvent struct {
		Stdout []byte `json:"stdout,omitempty"`
		Stderr []byte `json:"stderr,omitempty"`
		PTY    []byte `json:"pty,omitempty"`
	}
	endEvent struct {
		ExitCode int    `json:"exitCode,omitempty"`
		Exited   bool   `json:"exited,omitempty"`
		Status   string `json:"status"`
		Error    string `json:"error,omitempty"`
	}
)

// process is a program that a client has started. It is the engine's sink for its output.
type process struct {
	info  processInfo
	pty   bool
	stdin *input                    // nil for none
	sizes chan sandbar.TerminalSize // room for one
	run   *engine.Process
	// expiry kills it at its time limit; nil for none.
	expiry *time.Timer
	ended  time.Time // guarded by life.mu; zero while it runs

	log *logbook
	pid atomic.Int64 // 0 until it is known

	mu        sync.Mutex
	closed    bool // no output comes any more
	expired   bool
	followers map[*follower]struct{}
}

// follower is a client that gets the output of a process.
type follower struct {
	output chan sandbar.Chunk
	gone   chan struct{} // closed when the client has left
}

// start starts a program, and follows it.
func (l *life) start(r *http.Request, q startRequest, s *stream) error {
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	p := &process{info: processInfo{Config: q.Process, Tag: q.Tag}, pty: q.PTY != nil, log: &l.log, followers: map[*follower]struct{}{}}
	c, err := l.command(q, p)
	if err != nil {
		return err
	}
	var stdin sandbar.Input
	if p.pty || q.Stdin == nil || *q.Stdin {
		p.stdin = newInput()
		stdin = p.stdin
	}
	f := p.follow()
	run, err := l.sandbox.StartSink(r.Context(), c, stdin, sandbar.Limits{}, p)
	if err != nil {
		return l.notStarted(r.Context(), c, err, s)
	}
	p.run = run
	l.addProcess(p)
	if timeout > 0 {
		p.expiry = time.AfterFunc(timeout, p.expire) // whether the client still follows it or not
	}
	go l.awaitEnd(p)
	return l.deliver(r.Context(), p, f, s)
}

// command returns the engine's command.
func (l *life) command(q startRequest, p *process) (sandbar.Cmd, error) {
	if q.Process.Cmd == "" {
		return sandbar.Cmd{}, invalid("process.cmd", "process.cmd is missing", "")
	}
	dir, err := l.resolve(q.Process.Cwd)
	if err != nil {
		return sandbar.Cmd{}, err
	}
	c := sandbar.Cmd{Args: append([]string{q.Process.Cmd}, q.Process.Args...), Dir: dir, Env: l.environment(q.Process.Envs)}
	if q.PTY != nil {
		p.sizes = make(chan sandbar.TerminalSize, 1)
		size := q.PTY.size()
		if err := size.Check(); err != nil {
			return c, err
		}
		c.Terminal = &sandbar.Terminal{Size: size, Sizes: p.sizes}
	}
	return c, nil
}

func (t terminal) size() sandbar.TerminalSize {
	return sandbar.TerminalSize{Rows: t.Size.Rows, Cols: t.Size.Cols}
}

// environment returns the variables of a program: those by which it sees that it runs in a sandbox,
// and its own.
func (l *life) environment(own map[string]string) map[string]string {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": l.label(), "E2B_TEMPLATE_ID": l.Template}
	maps.Copy(env, own)
	return env
}

// notStarted handles a program that could not be started. A program that does not exist has started
// for the client, and ends like that of a shell.
func (l *life) notStarted(ctx context.Context, c sandbar.Cmd, err error, s *stream) error {
	code, message := exitNotFound, "command not found"
	switch sandbar.CodeOf(err) {
	case sandbar.NotFound:
		if _, statErr := l.sandbox.FS().Stat(ctx, c.Dir); sandbar.CodeOf(statErr) == sandbar.NotFound {
			return invalid("process.cwd", "cwd '"+printable(c.Dir)+"' does not exist", "")
		}
	case sandbar.Denied:
		code, message = exitNotExecutable, "permission denied"
	default:
		return err
	}
	l.mu.Lock()
	pid := l.unknownPID()
	l.mu.Unlock()
	status := "exit status " + strconv.Itoa(code)
	for _, e := range []processEvent{{Start: &startEvent{pid}}, {Data: &dataEvent{Stderr: []byte(printable(c.Args[0]) + ": " + message + "\n")}},
		{End: &endEvent{ExitCode: code, Exited: true, Status: status, Error: status}}} {
		if err := s.send(processMessage{e}); err != nil {
			return err
		}
	}
	return nil
}

// addProcess registers a process and gives it an id.
func (l *life) addProcess(p *process) {
	pid := p.run.PID()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropEnded()
	if pid == 0 {
		pid = l.unknownPID()
	}
	p.info.PID = pid
	p.pid.Store(int64(pid))
	l.procs = append(l.procs, p)
	l.logStart(p)
}

// unknownPID returns an id that no process has. l.mu is held.
func (l *life) unknownPID() int {
	l.unknown++
	return firstUnknown + l.unknown
}

// dropEnded forgets processes that have ended. l.mu is held.
func (l *life) dropEnded() {
	ended := 0
	for _, p := range l.procs {
		if !p.ended.IsZero() {
			ended++
		}
	}
	l.procs = slices.DeleteFunc(l.procs, func(p *process) bool {
		if p.ended.IsZero() || ended <= maxEnded && time.Since(p.ended) < keepEnded {
			return false
		}
		ended--
		return true
	})
}

// awaitEnd waits for the end of a process.
func (l *life) awaitEnd(p *process) {
	<-p.run.Done()
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if p.stdin != nil {
		p.stdin.shut()
	}
	l.mu.Lock()
	p.ended = time.Now()
	l.mu.Unlock()
	l.logEnd(p)
	p.close()
}

// Started implements engine.Sink.
func (*process) Started() {}

// Output implements engine.Sink. It waits for all clients that follow the process. Output that
// nobody follows is dropped.
func (p *process) Output(c sandbar.Chunk) error {
	p.logOutput(c)
	p.mu.Lock()
	followers := slices.Collect(maps.Keys(p.followers))
	p.mu.Unlock()
	if len(followers) > 0 {
		c.Data = bytes.Clone(c.Data)
	}
	for _, f := range followers {
		select {
		case f.output <- c:
		case <-f.gone:
		}
	}
	return nil
}

// follow adds a follower, which gets the output from now on.
func (p *process) follow() *follower {
	f := &follower{output: make(chan sandbar.Chunk, queued), gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		close(f.output)
	} else {
		p.followers[f] = struct{}{}
	}
	return f
}

// leave removes a follower.
func (p *process) leave(f *follower) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.followers, f)
	close(f.gone)
}

// close ends the output. It is called when the engine does not call Output any more.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for f := range p.followers {
		close(f.output)
	}
}

// expire ends a process at its time limit.
func (p *process) expire() {
	p.mu.Lock()
	p.expired = true
	p.mu.Unlock()
	p.run.Kill()
}

// deliver sends the events of a process to a follower until its end.
func (l *life) deliver(ctx context.Context, p *process, f *follower, s *stream) error {
	defer p.leave(f)
	if err := s.send(processMessage{processEvent{Start: &startEvent{p.info.PID}}}); err != nil {
		return err
	}
	s.pings(processMessage{processEvent{Keepalive: &none{}}})
	for {
		select {
		case c, more := <-f.output:
			if !more {
				return l.deliverEnd(p, s)
			}
			if err := s.send(processMessage{processEvent{Data: p.data(c)}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return endOf(ctx)
		}
	}
}

// endOf is the error of a stream whose context has ended: the server shuts down, or the client's
// own time limit has passed, or it has left and does not read the error.
func endOf(ctx context.Context) error {
	if context.Cause(ctx) == context.DeadlineExceeded {
		return sandbar.Errorf(sandbar.Timeout, "the stream reached its time limit")
	}
	return sandbar.Errorf(sandbar.Unavailable, "the daemon is shutting down")
}

func (p *process) data(c sandbar.Chunk) *dataEvent {
	switch {
	case p.pty:
		return &dataEvent{PTY: c.Data}
	case c.Stream == sandbar.Stderr:
		return &dataEvent{Stderr: c.Data}
	}
	return &dataEvent{Stdout: c.Data}
}

// deliverEnd sends the end of a process.
func (l *life) deliverEnd(p *process, s *stream) error {
	r, err := p.run.Wait(context.Background()) // it has ended
	if err != nil {
		return err
	}
	p.mu.Lock()
	expired := p.expired
	p.mu.Unlock()
	if expired && r.Outcome == sandbar.Cancelled {
		return sandbar.Errorf(sandbar.Timeout, "the command reached its time limit and was killed")
	}
	if _, err := l.server.engine.Get(context.Background(), l.id); err != nil && r.Outcome != sandbar.Exited {
		return sandbar.Errorf(sandbar.Gone, "the sandbox ended before the command")
	}
	e, err := endEventOf(r)
	if err != nil {
		return err
	}
	return s.sendLast(processMessage{processEvent{End: &e}})
}

// endEventOf returns the end of a process, in the words of Go's os.ProcessState. The platform's
// failure to determine an end is an error.
func endEventOf(r sandbar.Result) (endEvent, error) {
	switch r.Outcome {
	case sandbar.Exited:
		e := endEvent{ExitCode: r.ExitCode, Exited: true, Status: "exit status " + strconv.Itoa(r.ExitCode)}
		if r.ExitCode != 0 {
			e.Error = e.Status
		}
		return e, nil
	case sandbar.Signaled:
		status := "signal: " + signalName(r.Signal)
		return endEvent{ExitCode: -1, Status: status, Error: status + foreignCall(r.Signal)}, nil
	case sandbar.OutOfMemory:
		return endEvent{ExitCode: -1, Status: "signal: killed", Error: "signal: killed: the sandbox has reached its memory limit"}, nil
	case sandbar.OutputLimit:
		return endEvent{ExitCode: -1, Status: "signal: killed", Error: "signal: killed: the output limit was reached"}, nil
	case sandbar.TimedOut:
		return endEvent{}, sandbar.Errorf(sandbar.Timeout, "the command reached its time limit and was killed")
	case sandbar.Cancelled:
		return endEvent{ExitCode: -1, Status: "signal: killed", Error: "signal: killed"}, nil
	}
	return endEvent{}, sandbar.Errorf(sandbar.Gone, "the sandbox ended before the command")
}

func foreignCall(signal int) string {
	if why := sandbar.ForeignCall(signal); why != "" {
		return ": " + why
	}
	return ""
}

// signalName returns the name of a signal on Linux, as Go prints it.
func signalName(n int) string {
	names := [...]string{1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 5: "trace/breakpoint trap", 6: "aborted", 7: "bus error",
		8: "floating point exception", 9: "killed", 10: "user defined signal 1", 11: "segmentation fault", 12: "user defined signal 2", 13: "broken pipe",
		14: "alarm clock", 15: "terminated"}
	if n >= 1 && n < len(names) {
		return names[n]
	}
	return "signal " + strconv.Itoa(n)
}

// process returns a running process, or with ended also one whose end is kept.
func (l *life) process(q selector, ended bool) (*process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropEnded()
	var found *process
	for _, p := range l.procs {
		named := q.PID != nil && *q.PID == p.info.PID || q.PID == nil && q.Tag != nil && p.info.Tag != nil && *q.Tag == *p.info.Tag
		if named && (p.ended.IsZero() || ended) {
			found = p // the last one: the kernel may reuse a number
		}
	}
	if found != nil {
		return found, nil
	}
	name := "process"
	if q.PID != nil {
		name += " with pid " + strconv.Itoa(*q.PID)
	} else if q.Tag != nil {
		name += " with tag " + sandbar.Quote(*q.Tag, 40)
	}
	return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "process", Message: name + " not found"}
}

// connect follows a process from now on.
func (l *life) connect(r *http.Request, q selectRequest, s *stream) error {
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	p, err := l.process(q.Process, true)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return l.deliver(ctx, p, p.follow(), s)
}

// list lists the running processes in the order of their start.
func (l *life) list() processList {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all processList
	for _, p := range l.procs {
		if p.ended.IsZero() {
			all.Processes = append(all.Processes, p.info)
		}
	}
	return all
}

func (l *life) sendInput(ctx context.Context, q inputRequest) error {
	p, err := l.process(q.Process, false)
	if err != nil {
		return err
	}
	return p.send(ctx, q.inputData)
}

// streamInput sends the input of a stream of messages. The response comes after the last one.
func (l *life) streamInput(w http.ResponseWriter, r *http.Request, q streamInputRequest, s *stream) error {
	timeout, err := timeoutOf(r)
	if err != nil {
		return err
	}
	if q.Start == nil {
		return invalid("start", "the first message must have start", "")
	}
	p, err := l.process(q.Start.Process, false)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	control := http.NewResponseController(w)
	defer context.AfterFunc(ctx, func() { control.SetReadDeadline(time.Now()) })()
	for {
		raw, err := readEnvelope(r.Body, maxMessage)
		switch {
		case err == io.EOF:
			return s.send(none{})
		case err != nil && ctx.Err() != nil:
			return endOf(ctx)
		case err != nil:
			return err
		}
		var m streamInputRequest
		if err := decode(raw, &m); err != nil {
			return err
		}
		if m.Data != nil {
			if err := p.send(ctx, *m.Data); err != nil {
				return err
			}
		}
	}
}

// send passes input to the program.
func (p *process) send(ctx context.Context, q inputData) error {
	switch {
	case p.pty && q.Input.Stdin != nil:
		return invalid("input", "the process has a terminal: send input.pty", "")
	case !p.pty && q.Input.PTY != nil:
		return invalid("input", "the process has no terminal: send input.stdin", "")
	case p.stdin == nil:
		return &sandbar.Error{Code: sandbar.Conflict, Field: "input", Message: "the process was started without stdin", Fix: "start it with stdin: true"}
	}
	return p.stdin.add(ctx, append(q.Input.Stdin, q.Input.PTY...))
}

func (l *life) closeStdin(q selectRequest) error {
	p, err := l.process(q.Process, false)
	if err == nil && p.stdin != nil {
		p.stdin.finish()
	}
	return err
}

func (l *life) sendSignal(q signalRequest) error {
	number := map[string]int{"SIGNAL_SIGKILL": sigkill, "SIGNAL_SIGTERM": sigterm}[q.Signal]
	if number == 0 {
		return invalid("signal", "signal "+sandbar.Quote(q.Signal, 40)+" is not known", "send SIGNAL_SIGTERM or SIGNAL_SIGKILL")
	}
	p, err := l.process(q.Process, false)
	if err != nil {
		return err
	}
	return p.run.Signal(number)
}

// update passes on the latest size of a terminal.
func (l *life) update(q updateRequest) error {
	p, err := l.process(q.Process, false)
	switch {
	case err != nil:
		return err
	case !p.pty:
		return &sandbar.Error{Code: sandbar.Conflict, Field: "pty", Message: "the process has no terminal"}
	case q.PTY == nil:
		return invalid("pty", "pty is missing", "")
	}
	size := q.PTY.size()
	if err := size.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.sizes: // an older one that nothing has received
	default:
	}
	p.sizes <- size // has room: p.mu is held
	return nil
}

// input buffers standard input on its way from the client to the program.
type input struct {
	mu      sync.Mutex
	changed chan struct{} // closed at each change
	buf     []byte
	done    bool // the input has ended
	over    bool // the program has ended
}

func newInput() *input { return &input{changed: make(chan struct{})} }

// change wakes all that wait. i.mu is held.
func (i *input) change() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// add buffers input. It waits while the buffer is full.
func (i *input) add(ctx context.Context, p []byte) error {
	for {
		i.mu.Lock()
		n := min(len(p), maxInput-len(i.buf))
		changed := i.changed
		switch {
		case i.over:
			i.mu.Unlock()
			return &sandbar.Error{Code: sandbar.NotFound, Field: "process", Message: "the process has ended"}
		case i.done:
			i.mu.Unlock()
			return &sandbar.Error{Code: sandbar.Conflict, Field: "input", Message: "the stdin of the process is closed"}
		case n > 0:
			i.buf = append(i.buf, p[:n]...)
			p = p[n:]
			i.change()
		}
		i.mu.Unlock()
		if len(p) == 0 {
			return nil
		}
		if n > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sandbar.Errorf(sandbar.Canceled, "the client left, or the daemon is shutting down")
		}
	}
}

// finish marks the end of the input.
func (i *input) finish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done = true
	i.change()
}

// shut discards the input of a program that has ended.
func (i *input) shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done, i.over, i.buf = true, true, nil
	i.change()
}

// Read implements io.Reader for the program.
func (i *input) Read(p []byte) (int, error) {
	for {
		i.mu.Lock()
		n := copy(p, i.buf)
		i.buf = i.buf[:copy(i.buf, i.buf[n:])]
		done, changed := i.done, i.changed
		if n > 0 {
			i.change()
		}
		i.mu.Unlock()
		switch {
		case n > 0 || len(p) == 0:
			return n, nil
		case done:
			return 0, io.EOF
		}
		<-changed
	}
}
