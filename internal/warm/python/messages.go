package python

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Config is the first message to a template.
type Config struct {
	// Arch is the GOARCH whose system call numbers the template uses.
	Arch string
	// Imports are modules that must exist. The common modules of the standard library are imported
	// too, those that the installation has.
	Imports []string
	// Filters are the seccomp filters of a copy, in the order in which it installs them.
	Filters [][]byte
}

// calls returns the numbers of the system calls that the template makes by number.
func calls(arch string) (map[string]int, bool) {
	m, ok := map[string]map[string]int{
		"amd64": {"prctl": 157, "capget": 125, "capset": 126, "brk": 12, "setns": 308, "seccomp": 317, "close_range": 436, "landlock_restrict_self": 446},
		"arm64": {"prctl": 167, "capget": 90, "capset": 91, "brk": 214, "setns": 268, "seccomp": 277, "close_range": 436, "landlock_restrict_self": 446},
	}[arch]
	return m, ok
}

// common returns the modules that programs use most, and that import most others. The template
// skips those that the installation lacks.
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

// Append appends the message. It fails if Arch is unknown or an import is not a module name.
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
	b = fmt.Appendf(b, "%s;%s;%s;%s;%s\n", c.Arch, strings.Join(words, " "), strings.Join(common(), " "),
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

// isModule reports whether s is a dotted name of ASCII identifiers.
func isModule(s string) bool {
	for _, part := range strings.Split(s, ".") {
		if part == "" || len(s) > 200 || part[0] >= '0' && part[0] <= '9' ||
			strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			return false
		}
	}
	return true
}

// Hello is the template's first message. It is sent when all imports are done.
type Hello struct {
	// Version is the interpreter's version: "3.11".
	Version string
	// Read lists the environment variables that imports have read.
	Read []string
	// Module is a module that could not be imported, and Exception the exception's name. The other
	// fields are unset then, and the template exits.
	Module, Exception string
}

// MaxHello bounds a Hello, in bytes.
const MaxHello = 64 << 10

// ParseHello decodes a Hello; ok is false if b is none.
func ParseHello(b []byte) (h Hello, ok bool) {
	words := strings.Split(string(b), "\x00")
	switch {
	case words[0] == "import" && len(words) == 3:
		return Hello{Module: words[1], Exception: words[2]}, true
	case words[0] == "ready" && len(words) >= 3:
		return Hello{Version: words[1], Read: words[2:]}, true
	}
	return Hello{}, false
}

// Rlimit is a resource limit of a copy (getrlimit(2)). Resource is the kernel's number;
// RLIM_INFINITY is no limit.
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// ForkRequest asks a template for a copy. The message carries these descriptors, in this order: a
// SOCK_STREAM socket for the Run; the cgroup.procs or tasks files of the copy's control groups; its
// namespaces, the user namespace first; the Landlock ruleset, if Ruleset is set.
type ForkRequest struct {
	Cgroups, Namespaces int  // number of descriptors
	Ruleset             bool // whether there is a ruleset descriptor
	Profile             bool // the copy prints at its end, after its output, the input of WorkingSet
	Core                bool // the copy creates a core scheduling cookie (PR_SCHED_CORE_CREATE)
	Ranged              bool // the copy changes to UID and GID, and drops its groups
	UID, GID            uint32
	Nice                uint8
	Rlimits             []Rlimit
}

// Append appends the message.
func (r ForkRequest) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%d %d %d %d %d %d %d %d %d", r.Cgroups, r.Namespaces, bit(r.Ruleset), bit(r.Profile), bit(r.Core), bit(r.Ranged), r.UID, r.GID, r.Nice)
	for _, l := range r.Rlimits {
		b = fmt.Appendf(b, " %d %d %d", l.Resource, limit(l.Soft), limit(l.Hard))
	}
	return b
}

func bit(v bool) int {
	if v {
		return 1
	}
	return 0
}

// limit returns a limit as Python's module resource has it: -1 is no limit.
func limit(n uint64) int64 {
	if n > 1<<63-1 {
		return -1
	}
	return int64(n)
}

// MaxReady bounds the message of a copy that is ready or has failed, in bytes.
const MaxReady = 512

// ParseReady decodes the message of a copy that is ready: its process id in the sandbox's PID
// namespace, or an error. ok is false if b is neither.
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

// Run tells a copy which program to run. The first byte carries the descriptors of its standard
// streams.
type Run struct {
	Args []string // the program's file, as sys.argv[0], and the arguments
	Env  []string // the whole environment, "K=V"; empty keeps the template's
	// Code is written to the program's file by the copy. Nil means that the file exists.
	Code *string
}

// noCode takes the place of the code's length if Code is nil.
const noCode = 1<<32 - 1

// Append appends the message.
func (r Run) Append(b []byte) []byte {
	words := append([]string{strconv.Itoa(len(r.Args))}, r.Args...)
	text := strings.Join(append(words, r.Env...), "\x00")
	code, size := "", uint32(noCode)
	if r.Code != nil {
		code, size = *r.Code, uint32(len(*r.Code))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(4+len(code)+len(text)))
	b = binary.LittleEndian.AppendUint32(b, size)
	return append(append(b, code...), text...)
}

// StartOnly reports whether an environment variable has effect only when an interpreter starts, so
// that a program that changes it needs a cold start: variables of Python, the dynamic loader, libc,
// thread libraries and OpenSSL.
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
