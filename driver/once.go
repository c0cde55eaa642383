package driver

import (
	"context"
	"io/fs"

	"github.com/sandbar-dev/sandbar"
)

// OneShotter is an optional interface of a Driver that makes a sandbox for a single program with
// less work than Create. The sandbox has all properties of one from Create, and runs this one
// program.
type OneShotter interface {
	// TakesOneShots reports whether RunOnce takes programs of a Spec without unset fields, except
	// for unusual ones.
	TakesOneShots(s sandbar.Spec) bool
	// RunOnce makes a sandbox as Driver.Create does and starts its program as Sandbox.Start does.
	// Unsupported: only Create can make such a sandbox or start such a program. After any error no
	// part of the program has run, std.Stdin has not been read, and no part of the sandbox remains.
	RunOnce(ctx context.Context, id sandbar.ID, s sandbar.Spec, o OneShot, std Stdio) (Single, Process, error)
}

// OneShot is the program of a RunOnce.
type OneShot struct {
	Cmd sandbar.Cmd
	// File, if not "", is the absolute path of a file that is written before the program starts, as
	// WriteFile does, with the content Code.
	File, Code string
}

// Single is a sandbox that was made for one program. Its methods may be called concurrently.
type Single interface {
	Watcher
	// Destroy is Sandbox.Destroy.
	Destroy(ctx context.Context) error
}

// OneProgram implements Start and FS for a Sandbox that has been made for one program: every call
// is Unsupported.
type OneProgram struct{}

// Start implements Sandbox.
func (OneProgram) Start(context.Context, sandbar.Cmd, Stdio) (Process, error) {
	return nil, onlyOne()
}

// FS implements Sandbox.
func (OneProgram) FS() sandbar.FS { return noFiles{} }

func onlyOne() error {
	return sandbar.Errorf(sandbar.Unsupported, "the sandbox was made for one program; another needs another sandbox")
}

// noFiles is a sandbar.FS without operations.
type noFiles struct{}

func (noFiles) Open(context.Context, string) (sandbar.File, error) { return nil, onlyOne() }
func (noFiles) Create(context.Context, string, sandbar.CreateOptions) (sandbar.FileWriter, error) {
	return nil, onlyOne()
}
func (noFiles) Stat(context.Context, string) (sandbar.FileInfo, error) {
	return sandbar.FileInfo{}, onlyOne()
}
func (noFiles) ReadDir(context.Context, string, string, int) ([]sandbar.FileInfo, error) {
	return nil, onlyOne()
}
func (noFiles) Mkdir(context.Context, string, fs.FileMode, bool) error { return onlyOne() }
func (noFiles) Remove(context.Context, string, bool) error             { return onlyOne() }
func (noFiles) Rename(context.Context, string, string) error           { return onlyOne() }
func (noFiles) Chmod(context.Context, string, fs.FileMode, bool) error { return onlyOne() }

// Prober is an optional interface of a Single.
type Prober interface {
	// Ended asks the kernel whether the program has ended, which its Process reports a moment later.
	Ended() bool
}
