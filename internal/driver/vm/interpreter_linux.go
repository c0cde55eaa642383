package vm

import (
	"context"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/agent/client"
	"github.com/sandbar-dev/sandbar/internal/warm/prestart"
)

// interpreter is an interpreter that waits for its program in a saved machine, so that each
// restored machine has it.
type interpreter struct {
	Language string            `json:"language"`
	Argv     []string          `json:"argv"`
	File     string            `json:"file"`
	Env      map[string]string `json:"env"`
	Hook     string            `json:"hook"` // digest of prestart.Restorable
}

// spec is the inverse of the conversion in Prepare.
func (i *interpreter) spec(s sandbar.Spec) driver.TemplateSpec {
	return driver.TemplateSpec{Spec: s, Language: i.Language, Argv: i.Argv, File: i.File, Env: i.Env}
}

// start starts the interpreter in a machine that is about to be saved. The caller calls end
// afterwards.
func (i *interpreter) start(ctx context.Context, box *client.Sandbox, id sandbar.ID) (carried *client.Carried, end func(), err error) {
	only := &onlyMachine{Sandbox: box}
	t, err := prestart.Prepare(only, i.spec(sandbar.Spec{}))
	if err != nil {
		return nil, nil, err
	}
	waiting, err := t.Fork(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = waiting.Destroy(context.WithoutCancel(ctx)) } // that of onlyMachine cannot fail
	c, ok := client.Carry(only.process)
	if !ok {
		end()
		return nil, nil, sandbar.Errorf(sandbar.Internal, "the interpreter of a saved machine has no channels")
	}
	return &c, end, nil
}

// onlyMachine is a driver that has one sandbox. It records the program that is started there.
type onlyMachine struct {
	*client.Sandbox
	process driver.Process
}

func (*onlyMachine) Caps() driver.Caps { return driver.Caps{} }

func (m *onlyMachine) Create(context.Context, sandbar.ID, sandbar.Spec) (driver.Sandbox, error) {
	return m, nil
}

func (m *onlyMachine) Start(ctx context.Context, c sandbar.Cmd, std driver.Stdio) (p driver.Process, err error) {
	m.process, err = m.Sandbox.Start(ctx, c, std)
	return m.process, err
}

// Destroy leaves the machine to its owner.
func (*onlyMachine) Destroy(context.Context) error { return nil }

// Unwrap returns the driver's Templater, for driver.As: Driver itself has another method Prepare.
func (d *Driver) Unwrap() any { return templater{d} }

// templater is the driver.Templater of a Driver.
type templater struct{ d *Driver }

var _ driver.Templater = templater{}

// Prepare boots a machine in which the interpreter waits. Only Python can wait there.
func (t templater) Prepare(ctx context.Context, s driver.TemplateSpec) (driver.Template, error) {
	if len(s.Imports) > 0 {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "imports", Message: "modules cannot be imported in advance in a machine"}
	}
	if s.Spec.Network == sandbar.NetworkOutbound {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "network", Message: "a program that waits in a snapshot has a capability (NET_RAW) that programs with a network do not get"}
	}
	if err := t.d.refuse(s.Spec); err != nil {
		return nil, err
	}
	hook, err := prestart.Restorable(s)
	if err != nil {
		return nil, err
	}
	if _, err := prestart.Prepare(t.d, s); err != nil {
		return nil, err
	}
	made := &interpreterTemplate{d: t.d, spec: s, interpreter: &interpreter{s.Language, s.Argv, s.File, s.Env, hook}}
	if _, err := t.d.template(ctx, s.Spec, made.interpreter); err != nil {
		return nil, err
	}
	return made, nil
}

// interpreterTemplate is a snapshot with an interpreter.
type interpreterTemplate struct {
	d           *Driver
	spec        driver.TemplateSpec
	interpreter *interpreter
}

// Fork restores a machine.
func (t *interpreterTemplate) Fork(ctx context.Context, id sandbar.ID) (driver.Sandbox, error) {
	return prestart.Restore(t.spec, func(std driver.Stdio) (driver.Sandbox, driver.Process, error) {
		sb, err := t.d.make(ctx, id, t.spec.Spec, t.interpreter, std)
		if err != nil {
			return nil, nil, err
		}
		return sb, sb.Carried(), nil
	})
}

// Dead returns nil: a snapshot has no process.
func (*interpreterTemplate) Dead() <-chan struct{} { return nil }

// Close does nothing: the snapshot is kept.
func (*interpreterTemplate) Close() error { return nil }
