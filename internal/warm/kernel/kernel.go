// Package kernel holds the interpreters of contexts, which stay in a sandbox and run one cell of
// code after another, and the host's side of the connection to them.
//
// A kernel is a program of the sandbox like any other. Start of any driver starts its Command with
// a Conn's streams as input and outputs. The kernel's text is in the command or the first bytes of
// its input, so no file of the sandbox can replace it. Frames (frame.go) follow on the standard
// input and output. The kernel moves both to descriptors that programs do not inherit, and gives
// cells pipes of its own as outputs.
//
// The package decodes what a kernel sends, and trusts none of it: lengths, nesting and counts are
// bounded, and a frame that breaks a rule ends the connection. A cell can forge the frames of its
// own context: it runs in the same process.
package kernel

import (
	_ "embed"
	"slices"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

//go:embed kernel.py
var pythonText string

//go:embed kernel.cjs
var nodeText string

// bootPython runs the text that follows on the standard input. It must not read beyond it.
const bootPython = `import os,sys
n=int(sys.argv.pop());b=b""
while len(b)<n:
 p=os.read(0,n-len(b))
 if not p:os._exit(0)
 b+=p
exec(compile(b,"<sandbar>","exec"),{"__name__":"sandbar"})`

// bootNode is bootPython for node.
const bootNode = `const n=+process.argv.pop(),b=Buffer.alloc(n)
for(let i=0;i<n;){const k=require("fs").readSync(0,b,i,n-i);if(!k)process.exit(0);i+=k}
const ROLE="supervisor",LANGUAGE="",TEXT=b.toString();eval(TEXT)`

func commandNode(language string) func(string) []string {
	return func(node string) []string {
		return []string{node, "--no-warnings", "-e", bootNode, language, strconv.Itoa(len(nodeText))}
	}
}

// Language is a language of contexts.
type Language struct {
	Name string
	// Program is the name of the interpreter in the language catalogue (package lang).
	Program string
	Aliases []string
	// Env is added to the interpreter's environment.
	Env map[string]string

	command func(interpreter string) []string
	boot    string // the first bytes of the input
	shell   bool   // the kernel is a shell, which writes marks instead of frames
}

// Languages returns the languages of contexts.
func Languages() []Language {
	return []Language{
		{Name: "python", Program: "python", Aliases: []string{"python3", "py"}, boot: pythonText,
			Env: map[string]string{"PYTHONDONTWRITEBYTECODE": "1"},
			command: func(python string) []string {
				return []string{python, "-c", bootPython, strconv.Itoa(len(pythonText))}
			}},
		{Name: "javascript", Program: "javascript", Aliases: []string{"js", "node"}, boot: nodeText, command: commandNode("javascript")},
		{Name: "typescript", Program: "javascript", Aliases: []string{"ts"}, boot: nodeText, command: commandNode("typescript")},
		{Name: "bash", Program: "bash", Aliases: []string{"shell", "sh"}, boot: bootShell, shell: true,
			Env:     map[string]string{"PS1": "", "PS2": "", "PS0": "", "PROMPT_COMMAND": ""},
			command: func(string) []string { return []string{"bash", "--norc", "--noprofile", "--noediting", "-i"} }},
	}
}

// Find returns the language with a name or an alias. Unsupported: there is none.
func Find(name string) (Language, error) {
	var names []string
	for _, l := range Languages() {
		if l.Name == name || slices.Contains(l.Aliases, name) {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return Language{}, unknown(name, names)
}

// Command returns the command that starts the kernel with an interpreter.
func (l Language) Command(interpreter string) sandbar.Cmd {
	return sandbar.Cmd{Args: l.command(interpreter), Env: l.Env}
}
