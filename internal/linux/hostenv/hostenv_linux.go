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

// Layout is what the root of the image "host" depends on.
type Layout struct {
	Dirs  []policy.HostDir
	Etc   []string
	Extra []string
	// Python is as in policy.HostRootOptions.
	Python string
	// Local is policy.HostRootOptions.Local.
	Local []string
	// Proc is the names in the host's /proc that programs do not see.
	Proc []string
}

// ReadLayout looks at the host once; what is installed later in the same
// directories is seen all the same.
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

// lonePython is the path of python3 where programs would find no "python".
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

// localDirs are the directories below top that match patterns, without links on the
// way to them. They are at most maxLocal, so that what a sandbox costs has a bound.
func localDirs(top string, patterns []string) (dirs []string) {
	const maxLocal = 100
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			continue // no pattern of policy's is bad
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

// GroupLimits are those of a sandbox's limits that its control group is to hold,
// which can hold what c says. besides is how many processes and threads there are
// in the group that are not the programs'.
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

// programPath is where programs are looked for.
const programPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment is what every program in a sandbox starts from, as user; what the
// Spec says comes last.
func Environment(user string, spec map[string]string) []string {
	return environment(programPath, user, nil, spec)
}

// HostEnvironment is Environment with the host's own programs. The package managers
// among them install into /usr/local, wherever their own files are, and pip without
// regard to what it is told of the host (PEP 668): what it installs ends with the
// sandbox.
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

// Niceness turns a weight into the scheduler's terms, where each step is worth
// a quarter: half a share is 3.
func Niceness(shares int64) uint8 {
	if shares <= 0 || shares >= 1024 {
		return 0
	}
	steps := math.Round(math.Log(1024/float64(shares)) / math.Log(1.25))
	return uint8(min(steps, 19))
}

// MachineID is a fresh identity: no two sandboxes are the same machine.
func NewMachineID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// BootID is a fresh identity of the kernel's run, a random UUID (RFC 9562).
func NewBootID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// HardLimit is the daemon's own hard limit, which nothing below it can exceed.
func HardLimit(resource uint32) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(int(resource), &l) != nil {
		return policy.RlimitInfinity
	}
	return l.Max
}
