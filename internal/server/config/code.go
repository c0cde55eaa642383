package config

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// Code has the settings for single executions of code: by eval and tool, by the Go package sandbox,
// and, except for MaxOutput, by the daemon's protocols.
type Code struct {
	Languages      []string      // empty: all languages
	MaxOutput      int64         // per stream, in bytes; sandbar.Unlimited for no bound
	Timeout        time.Duration // overrides that of a request; 0 for no override
	Network        bool          // default network access of eval, run, tool and package sandbox
	BlockImports   bool
	BlockedImports []string
	Store          string // StoreNever, StoreOnError or StoreAlways
	Artifacts      string // a directory; relative to the working directory
}

// Executions is the directory of the files of executions, "" if none are kept.
func (c Code) Executions() string {
	if c.Store == StoreNever {
		return ""
	}
	return filepath.Join(c.Artifacts, "executions")
}

// The values of Code.Store.
const (
	StoreNever   = "never"
	StoreOnError = "on_error"
	StoreAlways  = "always"
)

func (c *Config) codeFields() []field {
	return []field{
		{path: "code.languages", value: list{&c.Code.Languages, checkName}, instead: "all there are",
			allowed: "a list of languages that there are",
			doc:     "The languages that requests may name. All others are refused as unknown."},
		measure("code.max_output", &c.Code.MaxOutput, size, bounds[int64]{lo: 1 << 10, hi: maxSize,
			words: []word[int64]{{unlimitedWord, sandbar.Unlimited}}}, "10KiB",
			"The maximum of stdout and of stderr in the answers of \"sandbar tool\" and of the Go package sandbox, and, if it is set, of "+
				"\"sandbar eval\" and \"run\". The program continues; further output is discarded, and the answer says so. "+
				"limits.max.output still ends a program that writes too much."),
		measure("code.timeout", &c.Code.Timeout, wallClock, bounds[time.Duration]{lo: time.Millisecond, hi: maxDuration,
			words: []word[time.Duration]{{"none", 0}}}, "none",
			"The time limit of every program of \"sandbar tool\" and of the Go package sandbox, whatever time limit the request asks for. "+
				"\"none\" leaves it to the request, and then to limits.default.timeout."),
		{path: "code.network", value: boolean(&c.Code.Network), initial: "false", allowed: "true or false",
			doc: "Whether the programs of \"sandbar eval\", \"run\" and \"tool\" and of the Go package sandbox have an outbound network without asking for it, as with --network."},
		{path: "code.block_imports", value: boolean(&c.Code.BlockImports), initial: "false", allowed: "true or false",
			doc: "Whether Python code that imports one of code.blocked_imports is refused. The code is parsed in its sandbox before it runs. " +
				"It is a safeguard against mistakes, not a boundary: code can hide its imports."},
		{path: "code.blocked_imports", value: list{&c.Code.BlockedImports, checkTopModule}, initial: "os,subprocess,shutil,socket,pathlib",
			allowed: "a list of names of modules, without dots",
			doc:     "The modules that code.block_imports refuses."},
		{path: "code.store", value: oneOf(&c.Code.Store, StoreNever, StoreOnError, StoreAlways), initial: StoreNever,
			allowed: "never, on_error or always",
			doc:     "Whether code is stored with its result, in a file for each execution: always, or only if the exit code is not 0. Environment and input are never stored; output is, up to code.max_output."},
		{path: "code.artifacts", value: text(&c.Code.Artifacts, checkArtifacts), initial: "artifacts",
			allowed: "the path of a directory; a relative one begins in the working directory",
			doc:     "The directory for code.store. The files are in its subdirectory \"executions\", readable by their owner only."},
	}
}

// checkTopModule accepts the name of a top-level module.
func checkTopModule(s string) error {
	if err := checkModule(s); err != nil || strings.Contains(s, ".") {
		return errors.New("is not the name of a module")
	}
	return nil
}

func checkArtifacts(s string) error {
	if s == "" || filepath.Clean(s) == string(filepath.Separator) {
		return errors.New("is not a directory of its own")
	}
	return nil
}
