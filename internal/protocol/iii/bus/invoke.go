package bus

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
)

// handle executes one frame. Work that takes time runs in a goroutine of its own. Only refusals
// wait for room to write, so a client that does not read is not read from either.
func (s *Server) handle(c *worker, frame []byte) {
	m, err := decode(frame)
	if err != nil {
		s.opt.Logger.Debug("iii: a frame was ignored", "worker", c.id, "bytes", len(frame))
		return
	}
	switch m.Type {
	case kindReattach:
		s.reattach(c, m)
	case kindRegisterFunction:
		s.register(c, m, len(frame))
	case kindUnregisterFunction:
		s.unregister(c, m.ID)
	case kindInvokeFunction:
		s.begin(c, m)
	case kindInvocationResult:
		s.resolve(c, m)
	case kindRegisterTrigger:
		c.sock.post(refusedTrigger(m))
	case kindPing:
		c.sock.post(&message{Type: kindPong})
	case kindPong, kindUnregisterTrigger, kindRegisterTriggerType, kindUnregisterTriggerType,
		kindTriggerRegistrationResult, kindRegisterService:
		// other types have no effect here
	default:
		s.opt.Logger.Debug("iii: a message of an unknown type was ignored", "worker", c.id)
	}
}

// refusedTrigger refuses a trigger, because it would never fire.
func refusedTrigger(m *message) *message {
	return &message{Type: kindTriggerRegistrationResult, ID: m.ID, TriggerType: m.TriggerType, FunctionID: m.FunctionID,
		Error: &Error{Code: codeTrigger, Message: "this server runs sandboxes and has no triggers; trigger type " +
			show(m.TriggerType) + " is not known, and the trigger will not fire"}}
}

// maxName is the longest id of a function, in bytes; maxRegistered bounds all registrations of one
// client, in bytes.
const (
	maxName       = 256
	maxRegistered = 8 << 20
)

// register registers a function of a client. The last registration of an id wins, so that a client
// whose old connection is not detected as lost yet gets its functions back. The server's own
// functions cannot be replaced.
func (s *Server) register(c *worker, m *message, size int) {
	if !s.tryRegister(c, m, size) {
		c.sock.post(&message{Type: kindRegistrationRejected, Code: codeConflict, Namespace: "default",
			FunctionID: m.ID, OwnerWorkerID: serverID})
	}
}

func (s *Server) tryRegister(c *worker, m *message, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, own := s.own[m.ID]
	_, engine := s.engine[m.ID]
	old := c.functions[m.ID]
	if !c.connected || m.ID == "" || len(m.ID) > maxName || own || engine ||
		old == nil && len(c.functions) >= s.opt.MaxFunctions || c.bytes+size > maxRegistered {
		return false
	}
	if old != nil {
		c.bytes -= old.bytes
	}
	r := &registration{owner: c, bytes: size, Function: Function{ID: m.ID, Description: m.Description,
		Request: m.RequestFormat, Response: m.ResponseFormat, Metadata: m.Metadata}}
	c.functions[m.ID], s.functions[m.ID] = r, r
	c.bytes += size
	return true
}

func (s *Server) unregister(c *worker, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := c.functions[id]
	if r == nil {
		return
	}
	delete(c.functions, id)
	c.bytes -= r.bytes
	if s.functions[id] == r {
		delete(s.functions, id)
	}
}

// begin starts an invocation, or refuses it.
func (s *Server) begin(c *worker, m *message) {
	if m.Data == nil {
		m.Data = json.RawMessage("null")
	}
	x, refused := s.tryBegin(c, m)
	if refused != nil {
		if !m.void() {
			c.sock.post(resultOf(m, nil, refused))
		}
		return
	}
	if _, ok := s.engine[m.FunctionID]; ok {
		<-x.ran // a builtin does not block, and the client's next message may rely on its effect
	}
}

func (s *Server) tryBegin(c *worker, m *message) (*call, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return nil, &Error{Code: CodeStopped, Message: "the server is shutting down"}
	case len(c.calls) >= s.opt.MaxCalls:
		return nil, &Error{Code: CodeInvocation, Message: "this connection has " + strconv.Itoa(s.opt.MaxCalls) +
			" invocations under way, which is as many as it may have; wait for one to end"}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	x := &call{by: c, cancel: cancel, ran: make(chan struct{})}
	c.calls[x] = struct{}{}
	s.underWay++
	s.tasks.Go(func() { s.run(ctx, x, c, m) })
	return x, nil
}

// run executes one invocation and answers it.
func (s *Server) run(ctx context.Context, x *call, c *worker, m *message) {
	raw, failed := s.dispatch(ctx, c, m)
	close(x.ran)
	if !m.void() {
		s.reply(c, resultOf(m, raw, failed))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.cancel()
	delete(x.by.calls, x)
	s.underWay--
	s.settle()
}

// resultOf returns the answer to an invocation.
func resultOf(m *message, raw json.RawMessage, failed *Error) *message {
	return &message{Type: kindInvocationResult, InvocationID: m.InvocationID, FunctionID: m.FunctionID,
		Result: raw, Error: failed, Traceparent: m.Traceparent, Baggage: m.Baggage}
}

// reply sends an answer to a client, on its current connection.
func (s *Server) reply(c *worker, m *message) {
	b, err := encode(m)
	if err != nil {
		return // messages can always be encoded
	}
	for !c.sock.send(b) {
		select {
		case <-c.moved:
			c = c.next // set before moved was closed
		case <-c.given:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// dispatch finds the function and runs it.
func (s *Server) dispatch(ctx context.Context, c *worker, m *message) (json.RawMessage, *Error) {
	if m.Action != nil && m.Action.Type == "enqueue" {
		return nil, &Error{Code: CodeEnqueue, Message: "this server has no queues; invoke the function without an action"}
	}
	if f, ok := s.engine[m.FunctionID]; ok {
		return answer(f(c, m.Data))
	}
	if f, ok := s.own[m.FunctionID]; ok {
		return answer(guarded(ctx, f.Handle, Call{Function: m.FunctionID, Data: m.Data, Caller: c.id, Traceparent: m.Traceparent}))
	}
	return s.forward(ctx, c, m)
}

// forward passes an invocation to the client that has the function, under a new id, because two
// callers may use the same one.
func (s *Server) forward(ctx context.Context, c *worker, m *message) (json.RawMessage, *Error) {
	out := &message{Type: kindInvokeFunction, FunctionID: m.FunctionID, Data: withCaller(m.Data, c.id),
		Traceparent: m.Traceparent, Baggage: m.Baggage, Metadata: m.Metadata, Action: m.Action}
	p := &pending{done: make(chan *message, 1)}
	s.mu.Lock()
	r := s.functions[m.FunctionID]
	if r == nil {
		s.mu.Unlock()
		return nil, functionNotFound(m.FunctionID)
	}
	owner := r.owner
	if !m.void() {
		out.InvocationID = channel.NewUUID()
		owner.pending[out.InvocationID] = p
	}
	s.mu.Unlock()
	stopped := &Error{Code: CodeStopped, Message: "the worker that runs " + show(m.FunctionID) + " has disconnected"}
	if !owner.sock.post(out) {
		s.drop(owner, out.InvocationID)
		return nil, stopped
	}
	if m.void() {
		return nil, nil
	}
	select {
	case got := <-p.done:
		if got == nil {
			return nil, stopped
		}
		return got.Result, got.Error
	case <-ctx.Done():
		s.drop(owner, out.InvocationID)
		return nil, &Error{Code: CodeStopped, Message: "the invocation was cancelled"}
	}
}

func (s *Server) drop(c *worker, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.pending, id)
}

// resolve handles the result of a forwarded invocation.
func (s *Server) resolve(c *worker, m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := c.pending[m.InvocationID]; p != nil {
		delete(c.pending, m.InvocationID)
		p.done <- m // has room: it is used once
	}
}

// withCaller adds _caller_worker_id to data that is an object.
func withCaller(data json.RawMessage, id string) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || fields == nil {
		return data
	}
	fields["_caller_worker_id"], _ = json.Marshal(id)
	b, err := encode(fields)
	if err != nil {
		return data
	}
	return b
}
