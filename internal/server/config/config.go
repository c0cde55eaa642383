// Package config is the operator's settings: one strict YAML file, an
// environment variable for every setting in it, and flags.
//
// A flag wins over a variable, a variable over the file, the file over the
// default. The table in fields.go is the only list of settings there is: what
// Load accepts and refuses, what --print-config prints and what
// docs/configuration.md says are all made from it.
//
// The package promises that nothing wrong passes unnoticed. An unknown name, a
// value of the wrong kind or out of range, a name given twice, settings that
// contradict each other: each is a *sandbar.Error of code Invalid that tells
// where it stands (file and line, variable or flag), what is allowed, and the
// name that was probably meant. Secrets are never part of an error or a print.
//
// It also knows the two directories of a daemon (state and runtime) and the
// token file, and makes and checks them.
package config

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// Config is every setting. Load fills all of it; the comments of the settings
// stand in the table of fields.go.
type Config struct {
	Listen         string
	Token          string // "" unless set here; see ResolveToken
	TokenFile      string
	TLS            TLS
	AllowedHosts   []string
	AllowedOrigins []string
	MetricsOpen    bool

	Driver  string
	Drivers map[string]map[string]string // by driver, by option
	// AllowedDrivers are those that a request may name besides Driver.
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
	IdleTimeout  time.Duration // Never for none
	MaxLifetime  time.Duration // Never for none
	ReplayBytes  int64
	KeepFinished int64

	Languages []lang.Language // beyond lang.Default

	Code            Code
	Templates       Templates
	Clients         []Client
	MaxConnections  int64
	TemplatesMemory int64

	Fathom   Fathom
	Executor Executor
	Log      Log

	URL string // "" unless set; see DaemonURL

	StateDir        string // "" for a user without a home directory
	RuntimeDir      string
	ShutdownTimeout time.Duration

	Images  Images
	Network Network
	III     III

	origins map[string]string // by path: where a setting that is not a default was set
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

// Executor is the settings of the sandbox executor protocol, in the daemon and
// alone.
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

// Images is where images are kept and from where they are fetched.
type Images struct {
	Dir                            string // "" unless set; see ImagesDir
	AutoInstall                    bool
	Registries, InsecureRegistries []string
	MaxBytes, MaxEntries           int64
	Timeout                        time.Duration
}

// ImagesDir is the directory where images are kept, "" where there is no
// StateDir.
func (c *Config) ImagesDir() string {
	if c.Images.Dir != "" || c.StateDir == "" {
		return c.Images.Dir
	}
	return filepath.Join(c.StateDir, "images")
}

// Log is the form of the daemon's logs.
type Log struct{ Level, Format string }

// Slog is the level as slog has it.
func (l Log) Slog() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return slog.LevelInfo // the zero Log; Load lets no other word pass
	}
	return level
}

// Origin tells where a setting was set: "config.yaml:3", "SANDBAR_LISTEN",
// "--listen"; "" if it has its default.
func (c *Config) Origin(path string) string { return c.origins[path] }

// Catalogue is the languages that can be run: lang.Default and Languages, or
// those of them that Code.Languages allows.
func (c *Config) Catalogue() (*lang.Catalogue, error) {
	all, err := lang.New(append(lang.Default(), c.Languages...)...)
	if err != nil || len(c.Code.Languages) == 0 {
		return all, err
	}
	return all.Only(c.Code.Languages...)
}
