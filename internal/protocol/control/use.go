package control

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/sandbar-dev/sandbar/client/wire"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// measureTime bounds one measurement.
const measureTime = 5 * time.Second

// serveMetrics responds with what the sandbox uses now.
func (e *entry) serveMetrics(w http.ResponseWriter, r *http.Request) {
	_, err := query(r, nil)
	if err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), measureTime)
	defer cancel()
	u, err := e.sandbox.Measure(ctx)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, wire.Metrics{Time: time.Now().UTC(), CPUTimeMS: float64(u.CPUTime.Microseconds()) / 1000,
		Memory: u.Memory, Cache: u.Cache, Files: u.Files, Processes: u.Processes})
}

func decodeRenew(raw []byte) (wire.Renew, error) {
	var x wire.Renew
	if len(bytes.TrimSpace(raw)) == 0 {
		return x, nil
	}
	return x, strictjson.Object(body, raw, amount("idle_timeout", "seconds", false, &x.IdleTimeout))
}

// serveRenew counts as a use of the sandbox, and changes its idle timeout if the request has one.
func (e *entry) serveRenew(w http.ResponseWriter, r *http.Request) {
	raw, err := readBody(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	x, err := decodeRenew(raw)
	if err != nil {
		fail(w, err)
		return
	}
	idle, err := e.server.idleOf(x.IdleTimeout)
	if err != nil {
		fail(w, err)
		return
	}
	if idle != 0 {
		e.setIdle(idle)
	}
	e.sandbox.Hold()()
	answer(w, http.StatusOK, e.describe())
}

// setIdle changes the idle timeout. It also applies after the sandbox was paused and resumed.
func (e *entry) setIdle(idle time.Duration) {
	e.mu.Lock()
	e.idle = idle
	o := e.origin
	e.mu.Unlock()
	e.sandbox.SetNote(noteOf(o))
	select {
	case e.renewed <- struct{}{}:
	default: // watch has not looked yet since the change before
	}
}
