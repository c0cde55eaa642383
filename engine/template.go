package engine

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Template describes sandboxes that the engine prestarts. A job gets one if its resolved Spec
// equals the template's, apart from environment, labels, timeout and output; otherwise it gets a
// fresh sandbox. For repeated jobs with other limits the engine also prestarts sandboxes with these
// limits, while such jobs arrive.
type Template struct {
	// Language is the language whose interpreter waits in the sandbox, if the driver or the engine
	// can prestart it. "": sandboxes for commands, and for programs of languages without a ready
	// sandbox.
	Language string
	// Spec is the Spec of the jobs, before defaults. Env, Labels and Egress must be empty. The timeout
	// and the output limit have no effect.
	Spec sandbar.Spec
	// Imports are modules that the waiting interpreter imports in advance, if it can.
	Imports []string
	// Min and Max bound the number of ready sandboxes. Between them, the number follows the recent
	// simultaneous requests. Default of Max: 8, or Min if that is more.
	Min, Max int
	// NoInterpreter prestarts sandboxes without an interpreter: every program starts its own, and
	// none is a fork of another process.
	NoInterpreter bool
}

// TemplateStats is the state and the counters of one template.
type TemplateStats struct {
	// Name is the language, or "plain" for none. "@" and the image follow, unless that is
	// sandbar.ImageHost, and "#2" if an earlier template has the same name.
	Name string
	// Driver, Language and Image are those of the template; Language is "" for none.
	Driver, Language, Image string

	Ready  int // ready sandboxes
	Target int // how many sandboxes should be ready

	Hits   int64 // requests that got a ready sandbox
	Misses int64 // requests without one
	Forks  int64 // sandboxes made ready
	Failed int64 // failed attempts to prepare or to fork
	Lost   int64 // ready sandboxes that died, or failed their job, which then ran cold
	// Refill is the total time of Forks.
	Refill time.Duration
}

// poolKey identifies the jobs that a ready sandbox matches.
type poolKey struct {
	driver          string
	language, image string
	limits          sandbar.Limits // without Timeout and Output, which the engine enforces
	network         sandbar.Network
	degraded        bool
	restricted      bool // by an Egress; no template is
}

// keyOf returns the key of a resolved Spec.
func keyOf(language string, s sandbar.Spec) poolKey {
	l := s.Limits
	l.Timeout, l.Output = 0, 0
	return poolKey{s.Driver, language, s.Image, l, s.Network, s.AllowDegraded, s.Egress != nil}
}

// templateSpec returns a resolved Spec without the fields that come with the job.
func templateSpec(s sandbar.Spec) sandbar.Spec {
	s.Env, s.Labels, s.Name = nil, nil, ""
	return s
}

// newPools makes a pool of each template of the Config. It returns the errors of resolve and of the
// language catalogue. It logs and skips a template that repeats another or that the driver cannot
// do or enforce.
func (e *Engine) newPools(templates []Template) (*pools, error) {
	all := &pools{e: e, byKey: map[poolKey]*pool{}, wakeups: make(chan struct{}, 1), stopped: make(chan struct{}),
		memoryBudget: e.cfg.ReadyMemory, maxForks: concurrentForks()}
	names := map[string]int{}
	for _, t := range templates {
		p, err := e.newPool(t)
		switch {
		case err != nil && sandbar.CodeOf(err) == sandbar.Unsupported && sandbar.AsError(err).Field != "language":
			// Every job with these limits fails with the same error.
			e.log.Warn("template skipped", "language", t.Language, "error", err)
			continue
		case err != nil:
			return nil, err
		}
		if all.byKey[p.key] != nil {
			e.log.Warn("template skipped: another has the same language, image and limits", "template", p.name)
			continue
		}
		all.byKey[p.key] = p
		if names[p.name]++; names[p.name] > 1 {
			p.name += "#" + strconv.Itoa(names[p.name])
		}
		all.list = append(all.list, p)
	}
	return all, nil
}

func (e *Engine) newPool(t Template) (*pool, error) {
	if len(t.Spec.Env) > 0 || len(t.Spec.Labels) > 0 || t.Spec.Cold || t.Spec.Egress != nil {
		return nil, badConfig("templates", "must have no environment, no labels and no egress, which come with the job, and must not be cold")
	}
	if t.Min < 0 || t.Max < 0 || t.Max > 0 && t.Min > t.Max {
		return nil, badConfig("templates", "has min "+strconv.Itoa(t.Min)+" and max "+strconv.Itoa(t.Max)+"; they are counts, and min is at most max")
	}
	setDefault(&t.Max, max(t.Min, 8))
	var l lang.Language
	name := "plain"
	if t.Language != "" {
		var err error
		if l, err = e.cfg.Languages.Find(t.Language); err != nil {
			return nil, err
		}
		name = l.Name
	}
	spec, err := e.resolve(t.Spec)
	if err != nil {
		return nil, err
	}
	if spec.Image != sandbar.ImageHost {
		name += "@" + spec.Image
	}
	t.Imports = slices.Clone(t.Imports)
	if l.Name != "" && e.prefersOneShot(&plan{language: l, spec: spec}) {
		t.Min, t.Max = 0, 0 // no request takes one
	}
	b, err := e.backend(spec.Driver)
	if err != nil {
		return nil, err
	}
	return &pool{name: name, key: keyOf(l.Name, spec), spec: templateSpec(spec), language: l, cfg: t, remote: b.caps.RemoteCreates, cost: assumedCost, stats: &TemplateStats{}}, nil
}

// mergeEnv returns the environment of a program in a sandbox that was made without its Spec's
// environment.
func mergeEnv(spec, cmd map[string]string) map[string]string {
	if len(spec) == 0 {
		return cmd
	}
	env := maps.Clone(spec)
	maps.Copy(env, cmd)
	return env
}
