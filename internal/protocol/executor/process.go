package executor

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// process is a background process.
type process struct {
	id      string
	command string
	proc    *engine.Process
	log     *logStore
	done    chan struct{} // closed after end is set
	// set before done is closed
	end   ending
	ended time.Time
}

// state is the process's state now.
func (p *process) state() state {
	select {
	case <-p.done:
		return p.end.state
	default:
		return running
	}
}

// table has the processes in start order.
type table struct {
	keep int // number of finished ones to keep

	mu  sync.Mutex
	all []*process
}

func (t *table) add(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, p)
}

// find returns a process, nil if there is none with this id.
func (t *table) find(id string) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (t *table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// forget drops the oldest finished processes beyond keep.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	surplus := -max(t.keep, 0)
	for _, p := range t.all {
		if p.state() != running {
			surplus++
		}
	}
	t.all = slices.DeleteFunc(t.all, func(p *process) bool {
		if surplus <= 0 || p.state() == running {
			return false
		}
		surplus--
		p.log.release()
		return true
	})
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand crashes the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// startProcess serves POST /start_process (docs/protocols.md, Executor: "Start Process").
func (s *Server) startProcess(w http.ResponseWriter, r *http.Request) {
	c, _, ok := s.readCommand(w, r, extras{})
	if !ok {
		return
	}
	if c.cmd == "" {
		answerText(w, http.StatusBadRequest, "Command is required")
		return
	}
	p := &process{id: newUUID(), command: c.cmd, done: make(chan struct{}),
		log: newLogStore(s.options.KeepLines, s.options.KeepBytes, s.kept)}
	var err error
	p.proc, err = s.sandbox.StartSink(r.Context(), c.shell(), nil, sandbar.Limits{}, p.log)
	switch {
	case err == nil:
		s.processes.add(p)
		go s.watch(p)
		answerJSON(w, http.StatusCreated, object(member{"id", p.id}, member{"pid", p.proc.PID()}, member{"status", string(running)}))
	case s.badDir(r.Context(), c, err):
		refuseDir(w, c)
	default:
		answerJSON(w, startStatusOf(sandbar.CodeOf(err)), object(member{"id", ""}, member{"pid", 0}, member{"status", ""},
			member{"error", "Failed to start process: " + sandbar.AsError(err).Error()}))
	}
}

// watch waits for the end of a process, at the latest that of its sandbox.
func (s *Server) watch(p *process) {
	res, err := p.proc.Wait(context.Background())
	p.end = endingOf(res, 0)
	if err != nil {
		s.options.Logger.Warn("the end of a process could not be learned", "sandbox", s.sandbox.ID(), "process", p.proc.ID(), "error", err)
		p.end = ending{code: -1, state: failed}
	}
	p.ended = time.Now()
	// In this order, a client that sees the end finds all lines, and a reader of the last line sees
	// the end.
	p.log.end(func() { close(p.done) })
	s.processes.forget()
}

// listProcesses serves GET /list_processes (docs/protocols.md, Executor: "List Processes").
func (s *Server) listProcesses(w http.ResponseWriter, _ *http.Request) {
	b := []byte(`{"processes":[`)
	for i, p := range s.processes.list() {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.append(b)
	}
	answerJSON(w, http.StatusOK, append(b, "]}"...))
}

// append appends the JSON of a process. A known client accepts exactly these keys.
func (p *process) append(b []byte) []byte {
	state := p.state()
	b = appendString(append(b, `{"id":`...), p.id)
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(p.proc.PID()), 10)
	b = appendString(append(b, `,"status":`...), state)
	b = appendString(append(b, `,"command":`...), p.command)
	b = appendTime(append(b, `,"started_at":`...), p.proc.Started())
	if state != running {
		b = strconv.AppendInt(append(b, `,"exit_code":`...), int64(p.end.code), 10)
		b = appendTime(append(b, `,"completed_at":`...), p.ended)
	}
	return append(b, '}')
}

func appendTime(b []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

// readID decodes a request with a process id.
func (s *Server) readID(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	ok = s.read(w, r, func(j *jsonReader) (err error) {
		id, err = readOne(j, "id")
		return err
	})
	if ok && id == "" {
		answerText(w, http.StatusBadRequest, "Process ID is required")
		return "", false
	}
	return id, ok
}

func notFound(id string) string { return "process not found: " + clip(id, 256) }

// killProcess serves POST /kill_process (docs/protocols.md, Executor: "Kill Process"). It responds
// after all processes that the process started have ended.
func (s *Server) killProcess(w http.ResponseWriter, r *http.Request) {
	id, ok := s.readID(w, r)
	if !ok {
		return
	}
	refuse := func(why string) {
		answerJSON(w, http.StatusBadRequest, object(member{"success", false}, member{"error", why}))
	}
	p := s.processes.find(id)
	if p == nil {
		refuse(notFound(id))
		return
	}
	if p.state() == running {
		p.proc.Kill()
		select {
		case <-p.done:
		case <-r.Context().Done():
			s.failure(w, r, http.StatusInternalServerError, sandbar.Errorf(sandbar.Canceled, "the process is being killed: %w", context.Cause(r.Context())))
			return
		}
		// it may have ended by itself in the meantime
		if p.end.state == killed {
			answerJSON(w, http.StatusOK, object(member{"success", true}, member{"message", "Process killed successfully"}))
			return
		}
	}
	refuse("process is not running (status: " + string(p.state()) + ")")
}
