package engine

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

const (
	// saveTimeout bounds saving a sandbox, restoreTimeout restoring one: both read and write all of
	// its memory.
	saveTimeout    = 10 * time.Minute
	restoreTimeout = 10 * time.Minute
	// maxForks bounds the sandboxes of one Fork.
	maxForks = 100
)

// Pause saves a long-lived sandbox on disk, with its files and, if the driver's Caps have
// SavesPrograms, its programs, and removes it from memory. It frees the slot. The sandbox keeps its
// id, and Resume continues it, also in another process with the same Config.PausedDir.
//
// Saved programs go on after Resume, but their callers get Conflict: output and input are cut, and
// so are transfers and connections. Other programs end. Config.MaxLifetime and idle timeouts do not
// run while a sandbox is paused.
//
// When Pause returns nil, the state is on disk. On an error the sandbox goes on, except Gone.
// Unsupported: the driver cannot. Exhausted: Config.MaxPaused, MaxPausedBytes or PausedShare is
// reached, or the disk is full. Conflict: the sandbox is paused already, or is being stopped. The
// end of ctx ends only the wait, with Canceled or Timeout.
func (e *Engine) Pause(ctx context.Context, id sandbar.ID) error {
	err := e.pause(ctx, id, false)
	c := callOf(ctx, DidPause, id, outcomeOK, err)
	c.began = ctx.Err() != nil // the work goes on
	e.called(c)
	return err
}

// pause implements Pause. suspend is stored as Paused.Suspended.
func (e *Engine) pause(ctx context.Context, id sandbar.ID, suspend bool) error {
	s, saver, err := e.saver(ctx, DidPause, id)
	if err != nil {
		return err
	}
	space, place, err := e.paused.reserve(s.spec.Client)
	if err != nil {
		return err
	}
	room, err := e.room(ctx, s.ticket)
	if err != nil {
		place.leave()
		return err
	}
	if room > 0 && (space == 0 || room < space) {
		space = room
	}
	if err := s.beginPause(); err != nil {
		place.leave()
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := s.pause(saver, space, place, suspend)
		place.leave()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return sandbar.Errorf(sandbar.CodeOfContext(ctx), "sandbox %s is being paused: %w", id, context.Cause(ctx))
	}
}

// SetNote sets what Pause stores with the sandbox and Resume gives back, as Paused.Note. The engine
// does not read it.
func (s *Sandbox) SetNote(note []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = note
}

// Suspend pauses all long-lived sandboxes whose driver can save them, for the next process with the
// same Config.PausedDir to resume: their Paused.Suspended is set. Their programs fare as with
// Pause. It is called before Shutdown, which ends the sandboxes that could not be saved. Suspend
// logs each of these and returns their number. The end of ctx ends the wait for those that are
// being saved.
func (e *Engine) Suspend(ctx context.Context) (ended int) {
	var work sync.WaitGroup
	var failed atomic.Int64
	places := make(chan struct{}, runtime.NumCPU())
	for _, i := range e.List(ctx) {
		work.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if err := e.pause(ctx, i.ID, true); err != nil {
				failed.Add(1)
				e.log.Warn("a sandbox cannot be kept over the restart", "sandbox", i.ID, "error", err)
			}
		})
	}
	work.Wait()
	return int(failed.Load())
}

// saver returns a live sandbox that can be saved.
func (e *Engine) saver(ctx context.Context, verb Verb, id sandbar.ID) (*Sandbox, driver.Saver, error) {
	if err := e.permit(ctx, verb, id); err != nil {
		return nil, nil, err
	}
	s, err := e.Get(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	saver, ok := driver.As[driver.Saver](s.inner)
	if !ok {
		return nil, nil, e.cannotSave(s.spec.Driver)
	}
	return s, saver, nil
}

// cannotSave is the error for sandboxes of a driver that cannot save them.
func (e *Engine) cannotSave(name string) error {
	var able []string
	for _, b := range e.backends {
		if _, ok := driver.As[driver.Restorer](b.driver); ok {
			able = append(able, b.caps.Name)
		}
	}
	fix := "let the operator allow the driver native or vm (allowed_drivers), and create the sandbox with it; `sandbar doctor` says what a driver lacks"
	if len(able) > 0 {
		fix = "create the sandbox with a driver that can: " + strings.Join(able, ", ")
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "driver", Message: "the driver " + sandbar.Quote(name, 40) + " cannot save a sandbox, so it can neither be paused nor forked", Fix: fix}
}

// beginPause makes calls fail until endPause.
func (s *Sandbox) beginPause() error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.e.closing {
		return unavailable()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pausing {
		return s.refusal()
	}
	s.pausing = true
	s.work++ // it is not idle
	s.e.work.add(1)
	return nil
}

// pause does the work of Pause after beginPause.
func (s *Sandbox) pause(saver driver.Saver, space int64, place *place, suspend bool) error {
	defer s.e.work.add(-1)
	began := time.Now()
	err := s.savePaused(saver, space, place, suspend)
	s.mu.Lock()
	s.pausing = false
	s.release()
	paused := s.paused
	if paused {
		s.close(endedPaused)
	}
	s.mu.Unlock()
	if !paused {
		s.e.logFailure("sandbox not paused", err, ownerOf(s.spec), "sandbox", s.id, "took", time.Since(began))
		return err
	}
	<-s.gone
	s.e.log.Info("sandbox paused", ownerOf(s.spec), "sandbox", s.id, "took", time.Since(began))
	return nil
}

// savePaused stores the sandbox as paused. The beginning of Shutdown stops it.
func (s *Sandbox) savePaused(saver driver.Saver, space int64, place *place, suspend bool) error {
	tmp, state, err := s.e.paused.begin(pausingPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // it does not exist after commit
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	defer s.cancelWhenDraining(cancel)()
	return catchPanic(func() error {
		_, err := saver.Save(ctx, state, driver.SaveOptions{MaxBytes: space, Commit: func(size int64) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.closed {
				return s.refusal()
			}
			spec := s.spec
			spec.Egress = s.egress
			undo, err := s.ticket.keepDisk(size)
			if err != nil {
				return err
			}
			err = s.e.paused.commit(tmp, pausedFile{Lived: s.lived + time.Since(s.began), Env: s.env,
				Paused: Paused{ID: s.id, Spec: spec, Created: s.created, Since: time.Now(), Size: size, Note: s.note, Suspended: suspend}}, place)
			if s.paused = err == nil; err != nil {
				undo()
			}
			return err
		}})
		return err
	})
}

// cancelWhenDraining calls cancel when Shutdown begins, until release is called.
func (s *Sandbox) cancelWhenDraining(cancel func()) (release func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-s.e.draining:
			cancel()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// pausedError replaces the end of a program that was running when its sandbox was paused.
func (s *Sandbox) pausedError(r sandbar.Result, err error) (sandbar.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.paused || err == nil && r.Outcome != sandbar.Lost && r.Outcome != sandbar.Cancelled {
		return r, err
	}
	told := &sandbar.Error{Code: sandbar.Conflict, Message: "sandbox " + string(s.id) + " was paused; the program goes on after the sandbox is resumed, without its input and output",
		Fix: "sandbar resume " + string(s.id)}
	if b, err := s.e.backend(s.spec.Driver); err == nil && !b.caps.SavesPrograms {
		told.Message = "sandbox " + string(s.id) + " was paused, which has ended the program: its driver keeps the files alone"
		told.Fix += ", and start the program again"
	}
	return sandbar.Result{}, told
}

// SetPausedNote replaces Paused.Note of a paused sandbox. When it returns nil, the note is on disk.
// NotFound: no sandbox with this id is paused. Conflict: it is being resumed or removed.
func (e *Engine) SetPausedNote(ctx context.Context, id sandbar.ID, note []byte) error {
	if err := e.permit(ctx, DidPause, id); err != nil {
		return err
	}
	return e.paused.setNote(id, note)
}

// Paused returns the paused sandboxes that the caller in ctx sees, oldest first.
func (e *Engine) Paused(ctx context.Context) []Paused {
	return slices.DeleteFunc(e.paused.list(), func(p Paused) bool { return !sees(ctx, p.Spec.Client, p.ID) })
}

// Resume continues a paused sandbox under its own id. It waits if no slot is free. NotFound: no
// sandbox with this id is paused. Conflict: it is being resumed or removed. Gone: its state is
// damaged. Unsupported: this daemon or host cannot use its state. After an error it is still
// paused.
func (e *Engine) Resume(ctx context.Context, id sandbar.ID) (_ *Sandbox, err error) {
	defer func() { e.called(callOf(ctx, DidResume, id, outcomeOK, err)) }()
	if err := e.permit(ctx, DidResume, id); err != nil {
		return nil, err
	}
	if s := e.find(id); s != nil {
		if !s.wasPaused() {
			return nil, sandbar.Errorf(sandbar.Conflict, "sandbox %s is not paused", id)
		}
		select { // its state is stored, and what ran is being removed
		case <-s.gone:
		case <-ctx.Done():
			return nil, sandbar.Errorf(sandbar.CodeOfContext(ctx), "sandbox %s is being paused: %w", id, context.Cause(ctx))
		}
	}
	p, dir, err := e.paused.take(id)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			e.paused.give(id)
		}
	}()
	if p.broken != nil {
		return nil, p.broken
	}
	began := time.Now()
	s := e.newSandbox(id, p.Spec)
	s.created, s.lived, s.env, s.note, s.suspended = p.Created, p.Lived, p.Env, p.Note, p.Suspended
	if err := e.restore(ctx, s, filepath.Join(dir, pausedState), nil, p.Size); err != nil {
		return nil, err
	}
	// The state is used up when the sandbox is there: its programs run.
	var gone string
	err = e.addAfter(s, Event{Type: EventResumed, Client: Client(ctx).Name}, func() (err error) { gone, err = e.paused.hide(id); return err })
	if err != nil {
		e.discard(id, s.inner, s.ticket)
		return nil, err
	}
	done = true
	e.queue.addDisk(p.Spec.Client, -p.Size)
	os.RemoveAll(gone) // on failure the next start removes it
	e.log.Info("sandbox resumed", callerIn(ctx), "sandbox", id, "took", time.Since(began))
	return s, nil
}

// Saves reports whether sandboxes of the default driver can be paused and forked.
func (e *Engine) Saves() bool {
	_, ok := driver.As[driver.Restorer](e.backends[0].driver)
	return ok && e.paused.dir != ""
}

// FromPaused are the parameters of CreateFrom.
type FromPaused struct {
	Labels map[string]string
	Env    map[string]string // added to the environment of the paused sandbox
	Client sandbar.Client
	// Network replaces that of the paused sandbox. Default: the same. Unsupported for a driver whose
	// Caps have SavesPrograms, because programs use it.
	Network sandbar.Network
	// Egress replaces that of the paused sandbox. Default: the same, if the network is.
	Egress *sandbar.Egress
}

// CreateFrom makes a long-lived sandbox from the state of a paused one, which stays paused. The new
// sandbox has an id of its own and no name. It waits if no slot is free. NotFound: no sandbox with
// this id is paused. Other errors are those of Create and Resume.
func (e *Engine) CreateFrom(ctx context.Context, id sandbar.ID, f FromPaused) (s *Sandbox, err error) {
	defer func() {
		e.called(call{client: f.Client, verb: DidCreate, sandbox: idOf(s, err), outcome: outcomeOK, err: err})
	}()
	if err := e.permit(ctx, DidCreate, id); err != nil {
		return nil, err
	}
	if f.Client, err = creator(ctx, f.Client); err != nil {
		return nil, err
	}
	p, dir, release, err := e.paused.read(id)
	if err != nil {
		return nil, err
	}
	defer release()
	b, err := e.backend(p.Spec.Driver)
	if err != nil {
		return nil, err
	}
	network := p.Spec.Network
	if f.Network != "" {
		if network, err = b.network(f.Network); err != nil {
			return nil, err
		}
	}
	if network != p.Spec.Network && b.caps.SavesPrograms {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "the saved sandbox has the network \"" + string(p.Spec.Network) + "\", and its programs go on with it",
			Fix: "ask for the same network, or for none in particular"}
	}
	egress := f.Egress
	if egress == nil && network == p.Spec.Network {
		egress = p.Spec.Egress
	}
	if err := b.checkEgress(network, egress); err != nil {
		return nil, err
	}
	env := mergeEnv(p.Spec.Env, f.Env)
	if err := e.checkEnv(env, nil); err != nil {
		return nil, err
	}
	if err := e.checkLabels(f.Labels); err != nil {
		return nil, err
	}
	began := time.Now()
	p.Spec.Egress = egress
	s = e.newSandbox(sandbar.NewID(), p.Spec)
	s.spec.Name, s.spec.Labels, s.spec.Client, s.spec.Network = "", maps.Clone(f.Labels), f.Client, network
	if err := e.restore(ctx, s, filepath.Join(dir, pausedState), nil, 0); err != nil {
		return nil, err
	}
	s.spec.Env, s.env = env, mergeEnv(p.Env, f.Env) // the driver has made it with that of the state
	if err := e.add(s, Event{Type: EventCreated, Client: f.Client.Name}); err != nil {
		e.discard(s.id, s.inner, s.ticket)
		return nil, err
	}
	e.log.Info("sandbox created from a paused one", callerIn(ctx), "sandbox", s.id, "from", id, "took", time.Since(began))
	return s, nil
}

// restore takes a slot, unless t is one, and makes the sandbox from a state. credit is the space of
// the state if the sandbox takes its place. On an error the slot is free when nothing is left of
// the sandbox.
func (e *Engine) restore(ctx context.Context, s *Sandbox, dir string, t *ticket, credit int64) (err error) {
	b, err := e.backend(s.spec.Driver)
	if err != nil {
		return err
	}
	restorer, ok := driver.As[driver.Restorer](b.driver)
	if !ok {
		return e.cannotSave(s.spec.Driver)
	}
	if t == nil {
		if t, err = e.takeSlot(ctx, s.spec, credit, !s.suspended); err != nil {
			return err
		}
	}
	s.ticket = t
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.cancelWhenDraining(cancel)()
	s.inner, err = bounded(restoreTimeout, ctx.Done(), func(ctx context.Context) (driver.Sandbox, error) {
		return restorer.Restore(ctx, s.id, s.spec, dir)
	}, func(sb driver.Sandbox) { e.discard(s.id, sb, t) })
	if err != nil {
		err = explain(err, e.draining)
		e.logFailure("sandbox not restored", err, "sandbox", s.id)
	}
	return err
}

// takeSlot waits for a slot for a long-lived sandbox. credit is as in restore. With rated it counts
// as a request of the client.
func (e *Engine) takeSlot(ctx context.Context, spec sandbar.Spec, credit int64, rated bool) (*ticket, error) {
	if rated {
		if err := e.allow(spec.Client); err != nil {
			return nil, err
		}
	}
	d := claimOf(spec)
	d.credit = credit
	d, err := e.hold(ctx, spec.Client, d)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	t, _, err := e.enter(longLived, spec.Client, d, nil)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e.makeRoom(t)
	return t, e.awaitSlot(t, ctx.Done(), time.Now())
}

// Fork makes n copies of a long-lived sandbox, 1 to 100, with its files and, if the driver's Caps
// have SavesPrograms, its running programs. The sandbox itself goes on; calls into it wait while it
// is saved. The copies have ids of their own and no name. In a copy the programs have no input,
// their output is dropped, and connections are closed. On an error there is no copy.
//
// Unsupported: the driver cannot. Exhausted, Timeout: there are not enough slots.
func (e *Engine) Fork(ctx context.Context, id sandbar.ID, n int) ([]*Sandbox, error) {
	forks, err := e.fork(ctx, id, n)
	for _, s := range forks {
		e.called(callOf(ctx, DidFork, s.id, outcomeOK, nil))
	}
	if err != nil {
		e.called(callOf(ctx, DidFork, id, outcomeOK, err))
	}
	return forks, err
}

// fork implements Fork.
func (e *Engine) fork(ctx context.Context, id sandbar.ID, n int) (forks []*Sandbox, err error) {
	if n < 1 || n > maxForks {
		return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "count", Message: "count: " + showNumber(int64(n)) + " is out of range; allowed: 1 to " + showNumber(int64(maxForks))}
	}
	source, saver, err := e.saver(ctx, DidFork, id)
	if err != nil {
		return nil, err
	}
	release, err := source.hold(ctx, DidFork)
	if err != nil {
		return nil, err
	}
	defer release()
	began := time.Now()
	defer func() {
		if err != nil { // of the copies that exist: none was returned
			for _, s := range forks {
				e.discard(s.id, s.inner, s.ticket)
			}
			forks = nil
		}
	}()
	for range n {
		s := e.newSandbox(sandbar.NewID(), source.Info().Spec)
		s.spec.Name, s.env = "", source.env
		if s.ticket, err = e.takeSlot(ctx, s.spec, 0, true); err != nil {
			return forks, err
		}
		forks = append(forks, s)
	}
	if err := e.forkInto(ctx, saver, source.id, forks); err != nil {
		return forks, err
	}
	for i, s := range forks {
		if err := e.add(s, Event{Type: EventForked, From: id, Client: Client(ctx).Name}); err != nil {
			for _, s := range forks[:i] {
				s.end(EndedShutdown)
			}
			forks = forks[i:]
			return forks, err
		}
	}
	e.log.Info("sandbox forked", callerIn(ctx), "sandbox", id, "forks", n, "took", time.Since(began))
	return forks, nil
}

// forkInto saves a sandbox and restores its state into each fork.
func (e *Engine) forkInto(ctx context.Context, saver driver.Saver, id sandbar.ID, forks []*Sandbox) error {
	tmp, state, err := e.paused.begin(forkPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	defer forks[0].cancelWhenDraining(cancel)()
	err = catchPanic(func() error {
		_, err := saver.Save(ctx, state, driver.SaveOptions{})
		return err
	})
	if err != nil {
		e.logFailure("sandbox not forked", err, callerIn(ctx), "sandbox", id)
		return err
	}
	for _, s := range forks {
		t := s.ticket
		if err := e.restore(ctx, s, state, t, 0); err != nil {
			return err
		}
	}
	return nil
}
