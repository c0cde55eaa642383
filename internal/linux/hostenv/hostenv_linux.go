package hostenv

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/cgroup"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// Layout has the facts about the host on which the root of the image "host" depends.
type Layout struct {
	Dirs  []policy.HostDir
	Etc   []string
	Extra []string
	// Python is policy.HostRootOptions.Python.
	Python string
	// Local is policy.HostRootOptions.Local.
	Local []string
	// Proc has the names in the host's /proc that programs do not see.
	Proc []string
}

// ReadLayout reads the host's layout once. Files that are installed later in the same directories
// are visible to sandboxes too.
func ReadLayout(extra []string) (Layout, error) {
	l := Layout{Extra: extra, Python: python3Alias()}
	for _, name := range policy.HostDirs() {
		link, err := os.Readlink(name)
		if err != nil {
			if info, err := os.Stat(name); err != nil || !info.IsDir() {
				continue
			}
		}
		l.Dirs = append(l.Dirs, policy.HostDir{Name: name, Link: link})
	}
	entries, err := os.ReadDir("/etc")
	if err != nil {
		return l, sandbar.Errorf(sandbar.Unsupported, "reading the host's /etc: %w", err)
	}
	for _, e := range entries {
		l.Etc = append(l.Etc, e.Name())
	}
	if LocalNote() == "" {
		l.Local = localDirs("/usr/local", policy.LocalDirs())
	}
	entries, err = os.ReadDir("/proc")
	if err != nil {
		return l, sandbar.Errorf(sandbar.Unsupported, "reading the host's /proc: %w", err)
	}
	for _, e := range entries {
		if !policy.ProcShown(e.Name()) {
			l.Proc = append(l.Proc, e.Name())
		}
	}
	return l, nil
}

// python3Alias returns the path of python3 if the PATH has no "python", otherwise "".
func python3Alias() string {
	python3 := ""
	for _, dir := range filepath.SplitList(programPath) {
		if _, err := os.Stat(dir + "/python"); err == nil {
			return ""
		}
		if _, err := os.Stat(dir + "/python3"); err == nil && python3 == "" {
			python3 = dir + "/python3"
		}
	}
	return python3
}

// localDirs returns the directories below top that match patterns and have no symbolic link in
// their path. It returns at most maxLocal, because each costs time in every sandbox.
func localDirs(top string, patterns []string) (dirs []string) {
	const maxLocal = 100
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			continue // not possible: the patterns of package policy are valid
		}
		for _, dir := range found {
			if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir || len(dirs) == maxLocal {
				continue
			}
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				dirs = append(dirs, strings.TrimPrefix(strings.TrimPrefix(dir, top), "/"))
			}
		}
	}
	return dirs
}

// GroupLimits returns the limits that a sandbox's cgroup enforces, given its capabilities c.
// besides is the number of processes and threads in the cgroup that are not the programs'.
func GroupLimits(c cgroup.Caps, l sandbar.Limits, besides int64) (g sandbar.Limits) {
	for _, x := range []struct {
		by      sandbar.Enforcement
		from    int64
		to      *int64
		besides int64
	}{
		{c.Memory, l.Memory, &g.Memory, 0},
		{c.CPUShares, l.CPUShares, &g.CPUShares, 0},
		{c.PIDs, l.PIDs, &g.PIDs, besides},
	} {
		if x.by != sandbar.EnforcedNone && x.from > 0 {
			*x.to = x.from + x.besides
		}
	}
	if c.CPUs != sandbar.EnforcedNone {
		g.CPUs = max(l.CPUs, 0)
	}
	return g
}

// programPath is the PATH of programs.
const programPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment returns the initial environment of every program, for a user. The variables of the
// Spec come last.
func Environment(user string, spec map[string]string) []string {
	return environment(programPath, user, nil, spec)
}

// HostEnvironment is Environment for the image "host". It makes package managers install into
// /usr/local, and pip ignore that the host's Python is externally managed (PEP 668): whatever it
// installs disappears with the sandbox.
func HostEnvironment(user string, spec map[string]string) []string {
	return environment(programPath+":"+policy.LinksDir, user, []string{"NPM_CONFIG_PREFIX=/usr/local", "PIP_BREAK_SYSTEM_PACKAGES=1"}, spec)
}

func environment(path, user string, more []string, spec map[string]string) []string {
	env := append([]string{
		"PATH=" + path,
		"HOME=" + sandbar.DefaultDir, "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh",
		"TMPDIR=/tmp", "LANG=C.UTF-8", "TERM=dumb",
	}, more...)
	for _, k := range sortedKeys(spec) {
		env = append(env, k+"="+spec[k])
	}
	return env
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Niceness converts CPU shares to a nice value. Each step is worth 25 % of CPU time: 512 of 1024
// shares are nice 3.
func Niceness(shares int64) uint8 {
	if shares <= 0 || shares >= 1024 {
		return 0
	}
	steps := math.Round(math.Log(1024/float64(shares)) / math.Log(1.25))
	return uint8(min(steps, 19))
}

// NewMachineID returns a random machine id, so that no two sandboxes have the same.
func NewMachineID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// NewBootID returns a random UUID (RFC 9562) as the boot id.
func NewBootID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// HardLimit returns the daemon's hard limit of a resource, which no process below it can exceed.
func HardLimit(resource uint32) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(int(resource), &l) != nil {
		return policy.RlimitInfinity
	}
	return l.Max
}
