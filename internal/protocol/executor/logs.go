package executor

import (
	"net/http"
	"time"
)

// processLogs serves GET /process_logs_streaming (docs/protocols.md, Executor: "Stream Process
// Logs"): the stored lines and then new ones, until the process's end. With the header
// Last-Event-ID it continues after that event. With follow=false, an extension, the stream ends
// after the stored lines.
func (s *Server) processLogs(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if id == "" {
		answerText(w, http.StatusBadRequest, "Process ID is required")
		return
	}
	p := s.processes.find(id)
	var from logPosition
	if last := r.Header.Get("Last-Event-ID"); last != "" && p != nil {
		var err error
		if from, err = parsePosition(last); err != nil || !p.log.valid(from) {
			answerText(w, http.StatusBadRequest, "Invalid Last-Event-ID: it is not the id of an event of this process")
			return
		}
	}
	o, stop := s.events(w, r)
	defer stop()
	beginEvents(w)
	if p == nil {
		o.send(event("error", object(member{"error", notFound(id)})))
		return
	}
	if err := o.Flush(); err != nil {
		return
	}
	if err := s.follow(r, o, p.log, from); err != nil {
		s.options.Logger.DebugContext(r.Context(), "a stream was cut", "sandbox", s.sandbox.ID(), "process", p.proc.ID())
	}
}

// follow sends a log from a place until its end or that of the request.
func (s *Server) follow(r *http.Request, o *out, log *logStore, from logPosition) error {
	beat := time.NewTimer(s.options.Heartbeat)
	defer beat.Stop()
	var events [][]byte
	var b []byte
	for {
		var more <-chan struct{}
		events, from, more = log.take(events[:0], from)
		if len(events) > 0 {
			b = b[:0]
			for _, e := range events {
				b = append(b, e...)
			}
			clear(events) // so that dropped lines can be freed
			if err := o.send(b); err != nil {
				return err
			}
			beat.Reset(s.options.Heartbeat)
			continue
		}
		if more == nil || r.URL.Query().Get("follow") == "false" {
			return o.send(event("complete", object(member{"message", "stream ended"})))
		}
		select {
		case <-more:
		case <-beat.C:
			beat.Reset(s.options.Heartbeat)
			if err := o.send([]byte(heartbeat)); err != nil {
				return err
			}
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}
