package engine

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Template asks for sandboxes that are made before there is a job for them. A
// job gets one whose Spec is what its own resolves to, the environment, labels
// and clocks aside; if there is none it gets a fresh one, as it would without
// templates. For jobs that ask for other limits than the template, and that come
// more than once, some are kept ready with theirs, as long as they come.
type Template struct {
	// Language is that of the programs, whose interpreter waits in the sandbox
	// where driver or engine can have it wait. "": sandboxes for commands, and for
	// the programs of languages that have no template or none ready.
	Language string
	// Spec is what jobs ask for, as they ask for it: what is unset becomes the
	// default. Env, Labels and the clocks have no part in it.
	Spec sandbar.Spec
	// Imports are modules that a waiting interpreter has imported, where it can.
	Imports []string
	// Min and Max bound how many are kept ready. Between them it is as many as
	// came at once of late. Default of Max: 8, or Min if that is more.
	Min, Max int
	// NoInterpreter keeps sandboxes without an interpreter ready: every program starts
	// its own, and none is a fork of another process.
	NoInterpreter bool
}

// TemplateStats is the state of one template, and what it has done.
type TemplateStats struct {
	// Name is the language, or "plain", with "@" and the image unless that is
	// sandbar.ImageHost, and with "#2" where another has the same.
	Name   string
	Ready  int // sandboxes that wait
	Target int // how many are to wait

	Hits   int64 // requests that got one
	Misses int64 // requests that came when there was none
	Forks  int64 // sandboxes made ready
	Failed int64 // attempts to prepare or to fork that failed
	Lost   int64 // ready sandboxes that died, and those that failed the job they were for, which then ran cold
	// Refill is the time that Forks took together.
	Refill time.Duration
}

// poolKey is what a ready sandbox is good for.
type poolKey struct {
	driver          string
	language, image string
	limits          sandbar.Limits // without those that the engine holds
	network         sandbar.Network
	degraded        bool
}

// keyOf returns the key of a resolved Spec.
func keyOf(language string, s sandbar.Spec) poolKey {
	l := s.Limits
	l.Timeout, l.Output = 0, 0
	return poolKey{s.Driver, language, s.Image, l, s.Network, s.AllowDegraded}
}

// bare is a resolved Spec without what comes with the job.
func templateSpec(s sandbar.Spec) sandbar.Spec {
	s.Env, s.Labels, s.Name = nil, nil, ""
	return s
}

// newPools makes a pool of each template of the Config. It fails with what
// resolve, or the language catalogue, finds wrong with one. A template is left
// out, and that is logged, if it repeats another or asks for what the driver
// cannot do or enforce.
func (e *Engine) newPools(templates []Template) (*pools, error) {
	all := &pools{e: e, byKey: map[poolKey]*pool{}, wakeups: make(chan struct{}, 1), stopped: make(chan struct{}),
		memoryBudget: e.cfg.ReadyMemory, maxForks: refillsAtOnce()}
	names := map[string]int{}
	for _, t := range templates {
		p, err := e.newPool(t)
		switch {
		case err != nil && sandbar.CodeOf(err) == sandbar.Unsupported && sandbar.AsError(err).Field != "language":
			// So would be every job that asks for the like of it, and told why.
			e.log.Warn("a template is left out", "language", t.Language, "error", err)
			continue
		case err != nil:
			return nil, err
		}
		if all.byKey[p.key] != nil {
			e.log.Warn("a template is left out, since there is one of the same language, image and limits", "template", p.name)
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
	if len(t.Spec.Env) > 0 || len(t.Spec.Labels) > 0 || t.Spec.Cold {
		return nil, badConfig("templates", "may have neither environment nor labels, which come with the job, nor be cold")
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
	return &pool{name: name, key: keyOf(l.Name, spec), spec: templateSpec(spec), language: l, cfg: t, cost: assumedCost, stats: &TemplateStats{}}, nil
}

// overlay is the environment of a program in a sandbox that was made without
// that of its Spec.
func mergeEnv(spec, cmd map[string]string) map[string]string {
	if len(spec) == 0 {
		return cmd
	}
	env := maps.Clone(spec)
	maps.Copy(env, cmd)
	return env
}
