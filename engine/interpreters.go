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
	// probeWait is how long Admit waits for the check of an interpreter. If there is no verdict by
	// then, Admit admits the job.
	probeWait = 2 * time.Second
	// missingTTL is how long a verdict is valid if the interpreter is missing, because an operator
	// may install it, or if the check failed. A verdict that the interpreter exists is valid until
	// a job finds it missing.
	missingTTL = 30 * time.Second
	// maxVerdicts is the largest number of verdicts. Callers choose the names of images.
	maxVerdicts = 1024
)

// interpreters holds verdicts on which interpreters exist. A verdict comes from an attempt to start
// the interpreter in a sandbox like the job's, with the job's command.
type interpreters struct {
	mu    sync.Mutex
	known map[interpreterKey]*verdict
}

type interpreterKey struct{ driver, image, program string }

// verdict is the result of the check of one interpreter.
type verdict struct {
	done chan struct{} // closed at the end of the check
	// written before done is closed
	found, missing bool // neither: the check failed and has no result
	at             time.Time
}

func interpreterKeyOf(s sandbar.Spec, l lang.Language) interpreterKey {
	return interpreterKey{s.Driver, s.Image, l.Interpreter()}
}

// knownVerdict is a verdict without a check.
func knownVerdict(found bool) *verdict {
	v := &verdict{done: make(chan struct{}), found: found, missing: !found, at: time.Now()}
	close(v.done)
	return v
}

// stale reports whether the check must be repeated.
func (v *verdict) stale() bool {
	select {
	case <-v.done:
		return !v.found && time.Since(v.at) > missingTTL
	default:
		return false
	}
}

// claim returns the verdict on an interpreter. If mine is true, the caller must check the
// interpreter and close done.
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

// put stores a verdict. i.mu is held.
func (i *interpreters) put(k interpreterKey, v *verdict) {
	if i.known == nil || len(i.known) >= maxVerdicts {
		i.known = map[interpreterKey]*verdict{} // each lost verdict costs one more check
	}
	i.known[k] = v
}

// note stores what a job has found out.
func (i *interpreters) note(k interpreterKey, found bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.put(k, knownVerdict(found))
}

// get returns the verdict on an interpreter; nil for none.
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

// checkInterpreter refuses a job whose interpreter its sandbox does not have, if
// Config.CheckLanguages is set. It admits the job if there is no verdict within probeWait; the
// start of the job's program then fails.
func (e *Engine) checkInterpreter(p *plan) error {
	_, own := p.spec.Env["PATH"] // a PATH of the job may lead to another interpreter
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

// missingInterpreter is the error of a job whose interpreter is missing.
func (e *Engine) missingInterpreter(p *plan, cause error) error {
	message := "language " + p.language.Name + " needs the program " + p.language.Interpreter() +
		", which the image " + sandbar.Quote(p.spec.Image, 80) + " does not have"
	if there := e.available(p.spec); e.cfg.CheckLanguages && len(there) > 0 {
		message += "; available are " + strings.Join(there, ", ")
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "language", Err: cause, Message: message}
}

// Available returns the languages, sorted, for jobs that name neither driver nor image: those of
// the catalogue without those whose interpreter is known to be missing. See Probe.
func (e *Engine) Available() []string {
	return e.available(sandbar.Spec{Driver: e.caps.Name, Image: sandbar.ImageHost})
}

func (e *Engine) available(s sandbar.Spec) []string {
	return slices.DeleteFunc(e.cfg.Languages.Names(), func(name string) bool {
		l, err := e.cfg.Languages.Find(name)
		return err != nil || e.interpreters.missing(interpreterKeyOf(s, l))
	})
}

// Probe checks which interpreters exist in a sandbox with the defaults, for Available. It returns
// when all checks have ended or ctx ends.
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
		return nil // every job with the default limits fails with the same error
	}
	return e.startProbe(s)
}

// startProbe starts to check the interpreters of all languages in a sandbox of a resolved Spec. It
// returns the verdicts by language without waiting for them.
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

// probe starts interpreters in one sandbox, each with the command of its language and no source
// file, and kills each as soon as it has started. If no slot is free, the verdicts have no result.
func (e *Engine) probe(s sandbar.Spec, of map[*verdict]lang.Language) {
	defer func() {
		for v := range of {
			v.at = time.Now()
			close(v.done)
		}
	}()
	slot := e.reserve()
	if slot == nil {
		return
	}
	id := sandbar.NewID()
	sb, err := bounded(e.setupTimeout(s.Driver), e.draining, func(ctx context.Context) (driver.Sandbox, error) {
		return e.create(ctx, id, s)
	}, func(sb driver.Sandbox) { e.discard(id, sb, slot) })
	if err != nil {
		e.logFailure("interpreters not looked for", explain(err, e.draining), "driver", s.Driver, "image", s.Image)
		return
	}
	defer e.discard(id, sb, slot)
	for v, l := range of {
		cmd := sandbar.Cmd{Args: l.Argv(l.File, nil), Env: l.Env, Dir: sandbar.DefaultDir}
		proc, err := bounded(probeWait, e.draining, func(ctx context.Context) (driver.Process, error) {
			return sb.Start(ctx, cmd, driver.Stdio{})
		}, func(driver.Process) {})
		switch {
		case err == nil:
			v.found = true
			_ = catchPanic(func() error { return proc.Signal(int(syscall.SIGKILL)) }) // errors are ignored: the sandbox is destroyed in any case
		case sandbar.CodeOf(err) == sandbar.NotFound:
			v.missing = true
		}
	}
}
