package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

const (
	// probeWait is how long Admit waits to learn whether an interpreter is there. A job of which
	// that is not known by then is admitted.
	probeWait = 2 * time.Second
	// missingLife is how long a verdict holds that an interpreter is missing, since an operator may
	// install it, or that nothing could be learned. An interpreter that was there is taken to be
	// there until a program finds it missing.
	missingTTL = 30 * time.Second
	// maxKnown is how many verdicts are kept. Images have names of their callers' choice.
	maxVerdicts = 1024
)

// interpreters are the verdicts on which interpreters there are. A verdict comes from an attempt to
// start the interpreter in a sandbox like the job's, as the job would.
type interpreters struct {
	mu    sync.Mutex
	known map[interpreterKey]*verdict
}

type interpreterKey struct{ driver, image, program string }

// verdict is what is known of one interpreter.
type verdict struct {
	done chan struct{} // closed when the attempt is over
	// written before done is closed
	found, missing bool // neither: the attempt failed, which says nothing
	at             time.Time
}

func interpreterKeyOf(s sandbar.Spec, l lang.Language) interpreterKey {
	return interpreterKey{s.Driver, s.Image, l.Interpreter()}
}

// over is a verdict without an attempt.
func knownVerdict(found bool) *verdict {
	v := &verdict{done: make(chan struct{}), found: found, missing: !found, at: time.Now()}
	close(v.done)
	return v
}

// stale reports whether an attempt must be made anew.
func (v *verdict) stale() bool {
	select {
	case <-v.done:
		return !v.found && time.Since(v.at) > missingTTL
	default:
		return false
	}
}

// claim returns the verdict on an interpreter. mine tells that the caller is to make the attempt
// and to close done.
func (i *interpreters) claim(k interpreterKey) (v *verdict, mine bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v := i.known[k]; v != nil && !v.stale() {
		return v, false
	}
	v = &verdict{done: make(chan struct{})}
	i.put(k, v)
	return v, true
}

// put keeps a verdict, with mu held.
func (i *interpreters) put(k interpreterKey, v *verdict) {
	if i.known == nil || len(i.known) >= maxVerdicts {
		i.known = map[interpreterKey]*verdict{} // each costs one attempt to learn again
	}
	i.known[k] = v
}

// note keeps what a program has found out.
func (i *interpreters) note(k interpreterKey, found bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.put(k, knownVerdict(found))
}

// get is the verdict on an interpreter, nil for none.
func (i *interpreters) get(k interpreterKey) *verdict {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.known[k]
}

// missing reports whether an interpreter is known to be missing.
func (i *interpreters) missing(k interpreterKey) bool {
	v := i.get(k)
	if v == nil {
		return false
	}
	select {
	case <-v.done:
		return v.missing
	default:
		return false
	}
}

// checkInterpreter refuses a job whose interpreter its sandbox does not have, if Config has asked
// for that. Where it cannot be known in time the job is admitted, and finds out by itself.
func (e *Engine) checkInterpreter(p *plan) error {
	_, own := p.spec.Env["PATH"] // the interpreter may be where nobody else looks
	if !e.cfg.CheckLanguages || p.language.Name == "" || own {
		return nil
	}
	v := e.interpreters.get(interpreterKeyOf(p.spec, p.language))
	if v == nil || v.stale() {
		v = e.startProbe(p.spec)[p.language.Name]
	}
	select {
	case <-v.done:
	default:
		limit := time.NewTimer(probeWait)
		defer limit.Stop()
		select {
		case <-v.done:
		case <-limit.C:
			return nil
		case <-e.draining:
			return unavailable()
		}
	}
	if v.missing {
		return e.missingInterpreter(p, nil)
	}
	return nil
}

// lacks is the refusal of a job whose interpreter is missing.
func (e *Engine) missingInterpreter(p *plan, cause error) error {
	message := "language " + p.language.Name + " needs the program " + p.language.Interpreter() +
		", which the image " + sandbar.Quote(p.spec.Image, 80) + " does not have"
	if there := e.available(p.spec); e.cfg.CheckLanguages && len(there) > 0 {
		message += "; available are " + strings.Join(there, ", ")
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "language", Err: cause, Message: message}
}

// Available is the languages that a job which names neither driver nor image may ask for, sorted:
// those of the catalogue without those whose interpreter is known to be missing. See Probe.
func (e *Engine) Available() []string {
	return e.available(sandbar.Spec{Driver: e.caps.Name, Image: sandbar.ImageHost})
}

func (e *Engine) available(s sandbar.Spec) []string {
	return slices.DeleteFunc(e.cfg.Languages.Names(), func(name string) bool {
		l, err := e.cfg.Languages.Find(name)
		return err != nil || e.interpreters.missing(interpreterKeyOf(s, l))
	})
}

// Probe looks which interpreters are there in a sandbox of the defaults, for Available. It returns
// when that is known, or cannot be known, or ctx ends.
func (e *Engine) Probe(ctx context.Context) {
	for _, v := range e.probeDefault() {
		select {
		case <-v.done:
		case <-ctx.Done():
			return
		}
	}
}

func (e *Engine) probeDefault() map[string]*verdict {
	s, err := e.resolve(sandbar.Spec{})
	if err != nil {
		return nil // so is every job without limits of its own, and told why
	}
	return e.startProbe(s)
}

// look begins to look for the interpreters of all languages in a sandbox of a resolved Spec, and
// returns the verdicts, by language. It does not wait.
func (e *Engine) startProbe(s sandbar.Spec) map[string]*verdict {
	all, mine := map[string]*verdict{}, map[*verdict]lang.Language{}
	for _, name := range e.cfg.Languages.Names() {
		if l, err := e.cfg.Languages.Find(name); err == nil {
			v, own := e.interpreters.claim(interpreterKeyOf(s, l))
			if own {
				mine[v] = l
			}
			all[name] = v
		}
	}
	if len(mine) > 0 {
		go e.probe(templateSpec(s), mine)
	}
	return all
}

// probe tries to start interpreters in one sandbox, each with the command of its language and no
// source file, and ends each as soon as it has started. It makes no verdict where no place is free.
func (e *Engine) probe(s sandbar.Spec, of map[*verdict]lang.Language) {
	defer func() {
		for v := range of {
			v.at = time.Now()
			close(v.done)
		}
	}()
	place := e.reserve()
	if place == nil {
		return
	}
	id := sandbar.NewID()
	sb, err := bounded(setupTimeout, e.draining, func(ctx context.Context) (driver.Sandbox, error) {
		return e.create(ctx, id, s)
	}, func(sb driver.Sandbox) { e.discard(id, sb, place) })
	if err != nil {
		e.logFailure("interpreters not looked for", explain(err, e.draining), "driver", s.Driver, "image", s.Image)
		return
	}
	defer e.discard(id, sb, place)
	for v, l := range of {
		cmd := sandbar.Cmd{Args: l.Argv(l.File, nil), Env: l.Env, Dir: sandbar.DefaultDir}
		proc, err := bounded(probeWait, e.draining, func(ctx context.Context) (driver.Process, error) {
			return sb.Start(ctx, cmd, driver.Stdio{})
		}, func(driver.Process) {})
		switch {
		case err == nil:
			v.found = true
			_ = catchPanic(func() error { return proc.Signal(int(syscall.SIGKILL)) }) // it goes with the sandbox
		case sandbar.CodeOf(err) == sandbar.NotFound:
			v.missing = true
		}
	}
}
