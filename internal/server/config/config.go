// Package config reads the operator's settings: one strict YAML file, an environment variable for
// every setting, and flags.
//
// A flag takes precedence over a variable, a variable over the file, the file over the default. The
// table in fields.go is the only list of settings: Load, --print-config and docs/configuration.md
// are all derived from it.
//
// Every mistake is an error: an unknown name, a value of the wrong type or out of range, a
// duplicate name, contradicting settings. Each is a *sandbar.Error of code Invalid with its
// position (file and line, variable or flag), the allowed values, and the most similar valid name.
// Errors and printed configurations never contain secrets.
//
// The package also creates and checks the two directories of a daemon (state and runtime) and the
// token file.
package config

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Config has all settings. Load fills it; the table of fields.go documents them.
type Config struct {
	Listen         string
	Token          string // "" unless set here; see ResolveToken
	TokenFile      string
	TLS            TLS
	AllowedHosts   []string
	AllowedOrigins []string
	MetricsOpen    bool
	PreviewDomain  string
	Console        bool // serves the browser console
	E2B            bool
	E2BDomain      string
	Peers          Peers

	Driver  string
	Drivers map[string]map[string]string // by driver and option
	// AllowedDrivers are the drivers besides Driver that a request may name.
	AllowedDrivers []string
	// SpeculationMitigations is On or Off.
	SpeculationMitigations string

	Limits        Limits
	AllowDegraded bool
	MaxSandboxes  int64
	MaxQueue      int64
	QueueTimeout  time.Duration
	MaxCode       int64
	MaxEnv        int64
	MaxFile       int64

	Grace        time.Duration
	IdleTimeout  time.Duration // Never for no timeout
	MaxLifetime  time.Duration // Never for no bound
	ReplayBytes  int64
	KeepFinished int64
	Paused       PausedSandboxes

	Languages []lang.Language // in addition to lang.Default

	Code            Code
	Templates       Templates
	Clients         []Client
	Tenants         []Tenant
	MaxConnections  int64
	TemplatesMemory int64

	Fathom   Fathom
	Executor Executor
	Log      Log
	Audit    Audit

	URL string // "" if not set; see DaemonURL

	StateDir        string // "" for a user without a home directory
	RuntimeDir      string
	ShutdownTimeout time.Duration

	Images  Images
	Network Network
	III     III

	origins map[string]string // by path: where a setting was set that does not have its default
}

// Never is the duration that stands for the word "never". The engine takes any
// negative duration so.
const Never time.Duration = -1

// TLS is the certificate and key of the listener; both or neither are set.
type TLS struct{ Cert, Key string }

// Limits are the defaults of a sandbox and the range a caller may ask for. In
// Max.CPUs, 0 stands for the host's processors.
type Limits struct{ Default, Min, Max sandbar.Limits }

// Fathom is the settings of the Fathom protocol.
type Fathom struct {
	DisconnectGrace  time.Duration
	WriteTimeout     time.Duration
	MaxPerConnection int64
	StoreCode        bool
	MaxStdin         int64
	Network          bool
}

// Executor is the settings of the sandbox executor protocol, in the daemon and alone.
type Executor struct {
	MaxJSON        int64
	MaxContent     int64
	MaxOutput      int64
	KeepLines      int64
	KeepBytes      int64
	KeepFinished   int64
	Heartbeat      time.Duration
	StallTimeout   time.Duration
	MaxConnections int64
}

// Peers is the other daemons behind the same load balancer; see package peers.
type Peers struct {
	Addresses []string
	CA        string
}

// Audit is the settings of the audit log.
type Audit struct {
	File    string // "" for none
	MaxSize int64  // bytes
	Keep    int64
}

// PausedSandboxes is where paused sandboxes are kept, and how many.
type PausedSandboxes struct {
	Dir           string // "" unless set; see PausedDir
	Max, MaxBytes int64
	ClientShare   int64 // percent
	OnShutdown    bool  // pause sandboxes instead of removing them
}

// PausedDir returns the directory of paused sandboxes, "" without a StateDir.
func (c *Config) PausedDir() string {
	if c.Paused.Dir != "" || c.StateDir == "" {
		return c.Paused.Dir
	}
	return filepath.Join(c.StateDir, "paused")
}

// Images is where images are kept and from where they are fetched.
type Images struct {
	Dir                            string // "" unless set; see ImagesDir
	AutoInstall                    bool
	Registries, InsecureRegistries []string
	MaxBytes, MaxEntries           int64
	Timeout                        time.Duration
}

// ImagesDir returns the directory of the image store, "" without a StateDir.
func (c *Config) ImagesDir() string {
	if c.Images.Dir != "" || c.StateDir == "" {
		return c.Images.Dir
	}
	return filepath.Join(c.StateDir, "images")
}

// Log is the level and format of the daemon's logs.
type Log struct{ Level, Format string }

// Slog returns the level for package slog.
func (l Log) Slog() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return slog.LevelInfo // the zero Log; Load accepts no other word
	}
	return level
}

// Origin returns where a setting was set: "config.yaml:3", "SANDBAR_LISTEN", "--listen"; "" for a
// default.
func (c *Config) Origin(path string) string { return c.origins[path] }

// Catalogue returns the languages that can be run: lang.Default and Languages, restricted to
// Code.Languages.
func (c *Config) Catalogue() (*lang.Catalogue, error) {
	all, err := lang.New(append(lang.Default(), c.Languages...)...)
	if err != nil || len(c.Code.Languages) == 0 {
		return all, err
	}
	return all.Only(c.Code.Languages...)
}
