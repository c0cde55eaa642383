package engine

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Limits of the kernel: one string of argv or environ, and all of argv together, which leaves room
// for the environment (execve(2), "Limits on size of arguments and environment"); a path
// (PATH_MAX).
const (
	maxString = 128<<10 - 1
	maxArgs   = 1 << 20
	maxPath   = 4095
)

// resolve returns the Spec for a driver: no field is unset, and every limit is in its range.
//
// If the driver cannot enforce a limit on this host:
//
//   - with AllowDegraded, of the Spec or the Config, the driver gets the limit and applies what it
//     can;
//   - if the caller set the limit, the Spec is Unsupported;
//   - if it is the operator's default for memory or pids, the Spec is Unsupported too, because
//     without these limits one sandbox can exhaust the host;
//   - any other default is dropped: the driver gets Unlimited (for the weight CPUShares: unset).
//     New logs this, and Result.Enforced reports it to the caller.
//
// An Unlimited limit needs no enforcement.
func (e *Engine) resolve(s sandbar.Spec) (sandbar.Spec, error) {
	if s.Image == "" {
		s.Image = sandbar.ImageHost
	}
	if err := checkText("image", s.Image, maxPath); err != nil {
		return s, err
	}
	if err := checkText("name", s.Name, maxPath); err != nil {
		return s, err
	}
	if s.IdleTimeout == 0 {
		s.IdleTimeout = e.cfg.IdleTimeout
	}
	b, err := e.backend(s.Driver)
	if err != nil {
		return s, err
	}
	s.Driver = b.caps.Name
	if s.Network, err = b.network(s.Network); err != nil {
		return s, err
	}
	if err := b.checkEgress(s.Network, s.Egress); err != nil {
		return s, err
	}
	if err := e.checkEnv(s.Env, nil); err != nil {
		return s, err
	}
	if err := e.checkLabels(s.Labels); err != nil {
		return s, err
	}
	asked := s.Limits
	if s.Limits, err = e.cfg.resolveLimits(asked, b.defaults, b.halfDisk); err != nil {
		return s, err
	}
	s.AllowDegraded = s.AllowDegraded || e.cfg.AllowDegraded
	if !s.AllowDegraded {
		if err := b.enforceable(asked, &s.Limits); err != nil {
			return s, err
		}
	}
	s.Env, s.Labels = maps.Clone(s.Env), maps.Clone(s.Labels)
	return s, nil
}

// network resolves the network of a Spec. Unsupported: the driver does not have it.
func (b backend) network(n sandbar.Network) (sandbar.Network, error) {
	switch n {
	case "", sandbar.NetworkNone:
		return sandbar.NetworkNone, nil
	case sandbar.NetworkOutbound:
		if b.caps.Outbound {
			return n, nil
		}
		return n, &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "the driver \"" + b.caps.Name + "\" does not have the network \"outbound\" on this host",
			Fix:     "use network \"none\", or see what is missing: `sandbar doctor`, and the setting network.outbound"}
	}
	return n, &sandbar.Error{Code: sandbar.Invalid, Field: "network",
		Message: "unknown network " + sandbar.Quote(string(n), 40) + "; allowed: \"none\" and \"outbound\""}
}

// checkEgress checks the Egress of a Spec with a network. Unsupported: the driver cannot enforce
// it.
func (b backend) checkEgress(n sandbar.Network, to *sandbar.Egress) error {
	switch {
	case to == nil:
		return nil
	case n != sandbar.NetworkOutbound:
		return &sandbar.Error{Code: sandbar.Invalid, Field: "egress", Message: "egress is that of the network \"outbound\", and the sandbox has the network \"" + string(n) + "\"",
			Fix: "ask for the network \"outbound\", or leave egress out"}
	case !b.caps.Egress:
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "egress", Message: "the driver \"" + b.caps.Name + "\" cannot restrict the network of one sandbox",
			Fix: "use the driver native or vm"}
	}
	return to.Check()
}

// enforceable applies the rules of resolve to the limits that the driver does not enforce.
func (b backend) enforceable(asked sandbar.Limits, l *sandbar.Limits) error {
	for _, x := range driverLimits(b.caps.Enforced) {
		switch {
		case x.enforced || !x.isSet(*l):
		case x.isSet(asked) || x.required:
			return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits." + x.name,
				Message: "limits." + x.name + ": the driver \"" + b.caps.Name + "\" cannot enforce it on this host",
				Fix:     "run `sandbar doctor` to see what is missing, or set allow_degraded to run without the limit"}
		default:
			x.clear(l)
		}
	}
	return nil
}

// checkEnv checks two maps that become one environment.
func (e *Engine) checkEnv(a, b map[string]string) error {
	var total int64
	for _, m := range []map[string]string{a, b} {
		if err := sandbar.CheckEnv(m); err != nil {
			return err
		}
		for k, v := range m {
			total += int64(len(k)) + int64(len(v))
			if len(k)+len(v)+1 > maxString {
				return tooLarge("env", "environment variable "+sandbar.Quote(k, 40), int64(len(k)+len(v)+1), maxString)
			}
		}
	}
	if total > e.cfg.MaxEnv {
		return tooLarge("env", "the environment", total, e.cfg.MaxEnv)
	}
	return nil
}

func (e *Engine) checkLabels(m map[string]string) error {
	var total int64
	for k, v := range m {
		total += int64(len(k)) + int64(len(v))
	}
	if total > e.cfg.MaxEnv {
		return tooLarge("labels", "the labels", total, e.cfg.MaxEnv)
	}
	return nil
}

func tooLarge(field, what string, have, most int64) error {
	return &sandbar.Error{Code: sandbar.TooLarge, Field: field,
		Message: what + " has " + showBytes(have) + ", and at most " + showBytes(most) + " are allowed"}
}

// checkText checks a string that a driver gets.
func checkText(field, s string, most int) error {
	if len(s) > most {
		return tooLarge(field, field, int64(len(s)), int64(most))
	}
	if strings.ContainsRune(s, 0) {
		return &sandbar.Error{Code: sandbar.Invalid, Field: field, Message: field + " " + sandbar.Quote(s, 40) + " has a NUL"}
	}
	return nil
}

func checkArgs(args []string) error {
	total := 0
	for _, a := range args {
		if err := checkText("args", a, maxString); err != nil {
			return err
		}
		total += len(a) + 1
	}
	if total > maxArgs {
		return tooLarge("args", "the argument list", int64(total), maxArgs)
	}
	return nil
}

// checkCmd checks a command except for its environment. It returns a copy that the caller cannot
// change.
func (e *Engine) checkCmd(s sandbar.Spec, c sandbar.Cmd) (sandbar.Cmd, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return c, &sandbar.Error{Code: sandbar.Invalid, Field: "args",
			Message: "there is no program to run: the first of args is its name or path"}
	}
	if err := checkArgs(c.Args); err != nil {
		return c, err
	}
	if err := checkText("dir", c.Dir, maxPath); err != nil {
		return c, err
	}
	if c.Dir == "" {
		c.Dir = sandbar.DefaultDir
	}
	c.Args, c.Env = slices.Clone(c.Args), maps.Clone(c.Env)
	if c.Terminal == nil {
		return c, nil
	}
	b, err := e.backend(s.Driver)
	if err != nil {
		return c, err
	}
	if !b.caps.Terminals {
		return c, driver.RefuseTerminal(b.caps.Name, c)
	}
	if c.Env["TERM"] == "" && s.Env["TERM"] == "" {
		c.Env = mergeEnv(c.Env, map[string]string{"TERM": defaultTerm})
	}
	return c, c.Terminal.Size.Check()
}

// defaultTerm is TERM of programs with a terminal, unless the caller sets it.
const defaultTerm = "xterm-256color"

// plan is a checked job: the sandbox to make and the program to run.
type plan struct {
	spec     sandbar.Spec
	language lang.Language // the zero Language: a plain command
	code     string
	args     []string // the program's own, if there is a language; cmd.Args includes them
	cmd      sandbar.Cmd
}

// file returns the path of the source file; "" for a plain command.
func (p plan) file() string {
	if p.language.Name == "" {
		return ""
	}
	return sandbar.DefaultDir + "/" + p.language.File
}

// plan checks a job.
func (e *Engine) plan(j sandbar.Job) (plan, error) {
	p := plan{code: j.Code, cmd: j.Cmd}
	var err error
	if j.Language != "" {
		if p.language, p.cmd, err = e.planLanguage(j); err != nil {
			return p, err
		}
		p.args = slices.Clone(j.Args)
	} else if j.Code != "" || len(j.Args) > 0 {
		return p, &sandbar.Error{Code: sandbar.Invalid, Field: "language",
			Message: "code and args need a language; available are " + strings.Join(e.cfg.Languages.Names(), ", ")}
	}
	if p.spec, err = e.resolve(j.Spec); err != nil {
		return p, err
	}
	if err = e.checkEnv(p.spec.Env, j.Cmd.Env); err != nil {
		return p, err
	}
	p.cmd, err = e.checkCmd(p.spec, p.cmd)
	return p, err
}

// planLanguage makes the command of a job with a language. The command names the source file
// relative to the working directory, DefaultDir, because a driver without its own file system maps
// DefaultDir to a path of the host. The caller's environment overrides the language's.
func (e *Engine) planLanguage(j sandbar.Job) (lang.Language, sandbar.Cmd, error) {
	if len(j.Cmd.Args) > 0 || j.Cmd.Dir != "" || len(j.Cmd.Env) > 0 {
		return lang.Language{}, sandbar.Cmd{}, &sandbar.Error{Code: sandbar.Invalid, Field: "language",
			Message: "a job has either a language or a command, and this one has both"}
	}
	l, err := e.cfg.Languages.Find(j.Language)
	if err != nil {
		return l, sandbar.Cmd{}, err
	}
	if size := int64(len(j.Code)); size > e.cfg.MaxCode {
		return l, sandbar.Cmd{}, tooLarge("code", "the code", size, e.cfg.MaxCode)
	}
	env := map[string]string{}
	for k, v := range l.Env {
		if _, set := j.Spec.Env[k]; !set {
			env[k] = v
		}
	}
	return l, sandbar.Cmd{Args: l.Argv(l.File, j.Args), Env: env}, nil
}
