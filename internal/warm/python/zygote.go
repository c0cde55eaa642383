// Package python is the Python half of templates: what an interpreter does that
// is to be copied into sandboxes, and the messages by which a driver has it do so.
// It starts nothing and makes no system calls; package native does.
//
// The interpreter is started on the program's file, which is not there yet, with
// Archive in front of its path. The sitecustomize in it imports what is to be ready,
// and waits on descriptor Control. For each Order it forks a copy, which enters the
// namespaces and control groups that came with the Order, drops there all that the
// agent's launcher drops, and waits for a Job on the socket that came with it. Then it
// returns into the interpreter's own start-up, which opens the file and runs it.
//
// The memory of a copy is that of its keeper too, a process outside of the sandbox
// that does nothing until the socket that came with the Order is shut: so a program's
// end is known before its memory is given back. Hello tells if there are keepers.
//
// Once a template is there, a copy rehearses: it runs Rehearsal and tells which pages
// of memory it has used, and Hot has all that follow have them from their start.
//
// What it promises:
//
//   - The template never runs a byte of a caller's: it reads Config, Orders and the
//     modules it imports, no Job and no file of a sandbox.
//   - A copy that cannot become exactly what it should be ends; it never goes on.
//   - While a copy has rights, nobody else's code is in its sandbox.
//   - A program can hardly tell: sys.modules, the import system, arguments,
//     environment, streams, exit handlers and what /proc shows are those of a cold
//     start. What it can still tell is in SECURITY.md, "Warm starts".
package python

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/warm/sitezip"
)

//go:embed bootstrap.py
var bootstrap []byte

// Descriptors that the interpreter is started with.
const (
	Control     = 3 // its end of a SOCK_SEQPACKET pair
	ArchiveFile = 4 // an open file with Archive
)

// PathVariable is the variable that puts Archive in front of the interpreter's
// path. What it held before follows ArchivePath and a colon.
const (
	PathVariable = sitezip.Variable
	ArchivePath  = "/proc/self/fd/4"
)

// Archive is the zip file that the interpreter imports its half from.
func Archive() []byte { return sitezip.Pack(bootstrap) }

// Config is the first message to a template.
type Config struct {
	// Arch is the GOARCH whose system calls the template makes.
	Arch string
	// Forked has copies made by fork, without keepers, where both are possible.
	Forked bool
	// Imports are modules that must be there. Common ones of the standard
	// library are imported besides where they are.
	Imports []string
	// Filters are the system-call filters of a copy, in the order in which it
	// installs them.
	Filters [][]byte
}

// calls are the numbers of system calls that the template makes by number.
func calls(arch string) (map[string]int, bool) {
	m, ok := map[string]map[string]int{
		"amd64": {"mmap": 9, "mprotect": 10, "prctl": 157, "capget": 125, "capset": 126, "brk": 12, "setns": 308, "seccomp": 317, "close_range": 436, "landlock_restrict_self": 446,
			"set_tid_address": 218, "set_robust_list": 273, "get_robust_list": 274, "rseq": 334},
		"arm64": {"mmap": 222, "mprotect": 226, "prctl": 167, "capget": 90, "capset": 91, "brk": 214, "setns": 268, "seccomp": 277, "close_range": 436, "landlock_restrict_self": 446},
	}[arch]
	return m, ok
}

// common are the modules that programs use most, by the number of others that come
// with them. One that an installation lacks is left out.
func common() []string {
	return strings.Fields(`
		argparse array ast asyncio base64 bisect bz2 calendar cmath collections.abc concurrent.futures
		configparser contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib
		email.message enum errno fnmatch fractions functools getpass glob gzip hashlib heapq hmac html
		http.client http.server importlib.metadata inspect io ipaddress itertools json keyword linecache
		locale logging lzma math mimetypes multiprocessing numbers operator pathlib pickle platform pprint
		queue random re sched secrets select selectors shlex shutil signal socket sqlite3 ssl stat
		statistics string struct subprocess tempfile textwrap threading timeit traceback types typing
		unicodedata unittest urllib.parse urllib.request uuid warnings weakref xml.etree.ElementTree
		zipfile zlib zoneinfo`)
}

// Append appends the message. It is an error if Arch is not known or Imports are
// not names of modules.
func (c Config) Append(b []byte) ([]byte, error) {
	numbers, ok := calls(c.Arch)
	if !ok {
		return nil, fmt.Errorf("no numbers of system calls for %s", c.Arch)
	}
	for _, name := range c.Imports {
		if !isModule(name) {
			return nil, fmt.Errorf("%q is not the name of a module", name)
		}
	}
	var words []string
	for _, name := range slices.Sorted(mapKeys(numbers)) {
		words = append(words, name+"="+strconv.Itoa(numbers[name]))
	}
	var sizes []string
	for _, f := range c.Filters {
		sizes = append(sizes, strconv.Itoa(len(f)))
	}
	way := "kept"
	if c.Forked {
		way = "forked"
	}
	b = fmt.Appendf(b, "%s %s;%s;%s;%s;%s\n", c.Arch, way, strings.Join(words, " "), strings.Join(common(), " "),
		strings.Join(c.Imports, " "), strings.Join(sizes, " "))
	return append(b, bytes.Join(c.Filters, nil)...), nil
}

func mapKeys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// isModule reports whether s is identifiers of ASCII, joined by dots.
func isModule(s string) bool {
	for _, part := range strings.Split(s, ".") {
		if part == "" || len(s) > 200 || part[0] >= '0' && part[0] <= '9' ||
			strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			return false
		}
	}
	return true
}

// Hello is what a template says when it has imported all.
type Hello struct {
	// Version is the interpreter's: "3.11".
	Version string
	// Kept tells that copies have a keeper: each is two processes until the end
	// of the socket that the keeper holds.
	Holders bool
	// Read are the variables of the environment that imports asked for.
	Read []string
	// Module is one that could not be imported, with the name of the exception,
	// and then there is nothing else.
	Module, Exception string
}

// MaxHello bounds a Hello in bytes.
const MaxHello = 64 << 10

// ParseHello reads what a template said.
func ParseHello(b []byte) (Hello, bool) {
	words := strings.Split(string(b), "\x00")
	switch {
	case words[0] == "import" && len(words) == 3:
		return Hello{Module: words[1], Exception: words[2]}, true
	case words[0] == "ready" && len(words) >= 4 && (words[2] == "kept" || words[2] == "forked"):
		return Hello{Version: words[1], Holders: words[2] == "kept", Read: words[3:]}, true
	}
	return Hello{}, false
}

// Rlimit is a resource limit of a copy. Resource is the kernel's number; the
// kernel's largest number stands for no limit.
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// Order asks a template for a copy. With it go, in this order: the job's socket, a
// SOCK_STREAM end; another, whose end of file ends the keeper; the files by which a
// process enters its control groups; its namespaces, that of users first; and the
// Landlock ruleset or none.
type ForkRequest struct {
	Cgroups, Namespaces int  // how many of them
	Ruleset             bool // whether there is one
	Profile             bool // the copy tells at its end, after its output, what Hot reads
	Core                bool // the copy asks for a core scheduling cookie of its own
	Ranged              bool // the copy takes on UID and GID, and has no groups
	UID, GID            uint32
	Nice                uint8
	Rlimits             []Rlimit
}

// Append appends the message.
func (o ForkRequest) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%d %d %d %d %d %d %d %d %d", o.Cgroups, o.Namespaces, bit(o.Ruleset), bit(o.Profile), bit(o.Core), bit(o.Ranged), o.UID, o.GID, o.Nice)
	for _, r := range o.Rlimits {
		b = fmt.Appendf(b, " %d %d %d", r.Resource, limit(r.Soft), limit(r.Hard))
	}
	return b
}

func bit(v bool) int {
	if v {
		return 1
	}
	return 0
}

// limit writes a limit as Python has it, where -1 is none.
func limit(n uint64) int64 {
	if n > 1<<63-1 {
		return -1
	}
	return int64(n)
}

// Rehearsal is the program of a copy that rehearses: it imports what is to be ready,
// and does little else, so that every program uses the memory that it does.
func ProfileProgram(imports []string) string {
	var code strings.Builder
	for _, name := range imports {
		code.WriteString("import " + name + "\n")
	}
	return code.String() + "print()\n"
}

// How many pages of 4 KiB a copy that waits has of its own, at most: 3.5 MiB, or with
// modules that were asked for what these take, which is little beside what they hold.
const (
	plainPages    = 896
	importedPages = 4096
)

// Hot is the message by which a template learns which pages copies use, from what
// a rehearsal with these imports printed. A copy has them from its start then. It is
// nil if the output names none, which is so where an interpreter ends by itself. Of the
// memory that a copy may have, in bytes, 0 or less being any, they take no more than a quarter.
func WorkingSet(imports []string, memory int64, output []byte) []byte {
	pages := uint64(plainPages)
	if len(imports) > 0 {
		pages = importedPages
	}
	if memory > 0 {
		pages = min(pages, uint64(memory)>>12/4)
	}
	message := []byte("hot\n")
	empty := len(message)
	for line := range strings.Lines(string(output)) {
		var start, length, advice uint64
		if n, err := fmt.Sscanf(line, "%x %x %x\n", &start, &length, &advice); n != 3 || err != nil || len(message) > maxWorkingSet {
			continue
		}
		if advice == populateWrite {
			if length>>12 > pages {
				continue
			}
			pages -= length >> 12
		}
		for _, word := range []uint64{start, length, advice} {
			message = binary.LittleEndian.AppendUint64(message, word)
		}
	}
	if len(message) == empty {
		return nil
	}
	return message
}

// populateWrite is MADV_POPULATE_WRITE.
const populateWrite = 23

// maxHot bounds the message of Hot, in bytes: the template takes 128 KiB.
const maxWorkingSet = 96 << 10

// MaxRehearsal bounds what a rehearsal prints, in bytes.
const MaxProfile = 1 << 20

// MaxReady bounds what a copy says before its job, in bytes.
const MaxReady = 512

// ParseReady reads what a copy says when it waits: its process id, as its sandbox
// numbers it, or what it failed at.
func ParseReady(b []byte) (pid uint32, failure string, ok bool) {
	word, rest, _ := strings.Cut(string(b), " ")
	switch word {
	case "ready":
		n, err := strconv.ParseUint(rest, 10, 31)
		return uint32(n), "", err == nil && n > 1
	case "failed":
		return 0, rest, true
	}
	return 0, "", false
}

// Job is the program that a copy runs. With its first byte go the descriptors of
// its three streams.
type Run struct {
	Args []string // the program's file, as it is called, and its arguments
	Env  []string // all of it, "K=V"; empty leaves that of the template
	// Code is what the copy writes to the program's file; nil: the file is there.
	Code *string
}

// noCode stands for the length of code that is not there.
const noCode = 1<<32 - 1

// Append appends the message.
func (j Run) Append(b []byte) []byte {
	words := append([]string{strconv.Itoa(len(j.Args))}, j.Args...)
	text := strings.Join(append(words, j.Env...), "\x00")
	code, size := "", uint32(noCode)
	if j.Code != nil {
		code, size = *j.Code, uint32(len(*j.Code))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(4+len(code)+len(text)))
	b = binary.LittleEndian.AppendUint32(b, size)
	return append(append(b, code...), text...)
}

// StartOnly reports whether an interpreter reads a variable of the environment as
// it starts, so that a job that changes it needs a start of its own: those of
// Python, of the loader and of libc, and what is set once for threads and
// cryptography.
func StartOnly(name string) bool {
	if slices.Contains([]string{"LANG", "LANGUAGE", "HOME", "OPENSSL_CONF", "OPENSSL_MODULES", "SSL_CERT_FILE", "SSL_CERT_DIR"}, name) {
		return true
	}
	for _, prefix := range []string{"PYTHON", "LD_", "LC_", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "BLIS_", "GOTO_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
