package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/driver/faulty"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// The directory of paused sandboxes is for one daemon, and only made for a driver that can pause.
// If the operator has not named it, a daemon without it runs all the same.
func TestPausedDir(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	state := filepath.Join(t.TempDir(), "state")
	cfg := &config.Config{StateDir: state}
	able := platform.Drivers{First: faulty.New()}
	open := func(cfg *config.Config, ds platform.Drivers, want string, code sandbar.Code) func() {
		t.Helper()
		dir, unlock, err := openPausedDir(cfg, ds, log)
		if dir != want || sandbar.CodeOf(err) != code {
			t.Fatalf("%q, %v; want %q, %q", dir, err, want, code)
		}
		return unlock
	}
	open(cfg, platform.Drivers{First: struct{ driver.Driver }{faulty.New()}}, "", "")
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("a directory was made: %v", err)
	}
	unlock := open(cfg, able, filepath.Join(state, "paused"), "")
	if info, err := os.Stat(filepath.Join(state, "paused")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	open(cfg, able, "", "")
	named := &config.Config{StateDir: state, Paused: config.PausedSandboxes{Dir: filepath.Join(state, "paused")}}
	open(named, able, "", sandbar.Conflict)
	unlock()
	open(named, able, filepath.Join(state, "paused"), "")()
	if err := os.Chmod(filepath.Join(state, "paused"), 0o777); err != nil {
		t.Fatal(err)
	}
	open(cfg, able, "", "")
	if _, _, err := openPausedDir(named, able, log); err == nil {
		t.Error("a directory that others can write to was used")
	}
	open(&config.Config{}, able, "", "")
}
