// Package python is the part of a Python template that runs in the interpreter, and the messages
// between the template and a driver. The package starts nothing and makes no system calls; package
// native does.
//
// A template is an interpreter that has imported modules and is forked into sandboxes. It is
// started on the name of the program's file, which does not exist yet, with Archive first on its
// path. The sitecustomize module in Archive imports the modules and reads ForkRequests from
// descriptor Control. For each ForkRequest it forks a copy. The copy enters the control groups and
// namespaces that came with the request, drops everything that the agent's launcher drops, and
// waits for a Run on the socket that came with the request. Then it returns into the interpreter's
// own start-up, which opens the file and runs it.
//
// When a template is ready, the driver runs ProfileProgram in one copy. It prints which pages of
// memory it has used. WorkingSet makes a message of them, and later copies map these pages when
// they are made.
//
// Invariants:
//
//   - The template never runs code of a caller. It reads Config, ForkRequests and the modules that
//     it imports, but no Run and no file of a sandbox.
//   - A copy that fails at any step exits.
//   - While a copy has rights, its sandbox contains no other program.
//   - To a program, sys.modules, the import system, arguments, environment, streams, exit handlers
//     and its entries in /proc look as after a cold start. SECURITY.md, "Warm starts", lists the
//     differences.
package python

import (
	"embed"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/warm/sitezip"
)

//go:embed bootstrap/*.py
var bootstrap embed.FS

// modules returns the names of the files in bootstrap, in the order in which they form one program.
// The last one runs it.
func modules() []string {
	return []string{"record_imports", "hidden_modules", "reseed", "fast_exit", "kernel", "working_set", "template", "start"}
}

// source joins modules into one program.
func source(modules []string) []byte {
	var b strings.Builder
	for _, name := range modules {
		text, err := bootstrap.ReadFile("bootstrap/" + name + ".py")
		if err != nil { // the file is embedded
			panic(err)
		}
		b.Write(append(text, '\n'))
	}
	return []byte(b.String())
}

// Descriptors that the interpreter must be started with.
const (
	Control     = 3 // one end of a SOCK_SEQPACKET pair
	ArchiveFile = 4 // a file with Archive
)

// PathVariable is the environment variable that puts Archive first on the interpreter's path. Its
// value is ArchivePath, or ArchivePath, a colon and the former value.
const (
	PathVariable = sitezip.Variable
	ArchivePath  = "/proc/self/fd/4"
)

// Archive returns the zip file with the template's program. The modules are one file in it, so that
// the interpreter looks up and compiles one.
func Archive() []byte { return sitezip.Pack(source(modules())) }
