package hostenv

import (
	"context"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

// ParsePaths reads the option that adds directories of the host to sandboxes:
// colon-separated, each as policy.CheckExtra accepts it, and each of them there.
func ParsePaths(option string) (paths []string, err error) {
	for _, p := range strings.Split(option, ":") {
		if p == "" {
			continue
		}
		if err := policy.CheckExtra(p); err != nil {
			return nil, err
		}
		if _, err := os.Stat(p); err != nil {
			return nil, &sandbar.Error{Code: sandbar.Invalid, Field: "paths",
				Message: "host path " + sandbar.Quote(p, 200) + " cannot be shown to sandboxes", Err: err, Fix: "make it, or take it out of the option paths"}
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// OpenImage finds the root of a sandbox: nil for the host's own programs.
func OpenImage(ctx context.Context, images driver.Images, name string) (*driver.Image, error) {
	if name == "" || name == sandbar.ImageHost {
		return nil, nil
	}
	if images == nil {
		return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "image",
			Message: "image " + sandbar.Quote(name, 100) + " is not known; there is the image \"" + sandbar.ImageHost + "\"",
			Fix:     "use the image \"" + sandbar.ImageHost + "\""}
	}
	image, err := images.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if image.Dir == "" {
		image.Close()
		return nil, nil
	}
	return &image, nil
}

// ImageNote says what images lack on this kernel, "" if nothing.
func ImageNote() string {
	if KernelAtLeast(6, 6) {
		return ""
	}
	return "sandboxes can be made of the image \"host\" only: others need Linux 6.6, where files in memory can carry the notes of overlay file systems"
}

// LocalNote says why programs cannot write in /usr/local of the image "host" on
// this host, "" if nothing is known to be in the way.
func LocalNote() string {
	const what = "/usr/local is read-only in sandboxes of the image \"host\": "
	if !KernelAtLeast(6, 6) {
		return what + "an overlay over it needs Linux 6.6, where files in memory can carry the notes of overlay file systems"
	}
	if info, err := os.Lstat("/usr/local"); err != nil || !info.IsDir() {
		return what + "this host has no directory of that name"
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); err == nil && len(f) > 4 && strings.HasPrefix(f[4], "/usr/local/") {
			return what + "something is mounted at " + f[4] + ", and an overlay cannot show it"
		}
	}
	return ""
}

// fewestMarks is how many programs one sandbox must be able to start: the agent
// refuses to work with less.
const minTags = 1 << 16

// Probe checks what a driver that makes namespaces cannot do without, with
// Unsupported.
func Probe(driver string) error {
	lack := func(what, fix string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the " + driver + " driver cannot run here: " + what, Fix: fix}
	}
	if !KernelAtLeast(5, 12) {
		return lack("the kernel is older than 5.12, which brought mount_setattr", "use a newer kernel, or another driver")
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return lack("the kernel has no user namespaces", "use a kernel with CONFIG_USER_NS, or another driver")
	}
	if n := HardLimit(unix.RLIMIT_LOCKS); n < minTags {
		return lack("the limit of file locks is "+strconv.FormatUint(n, 10)+", and programs are told apart by numbers up to that limit, which nothing else uses",
			"start the daemon without that limit (ulimit -Hx unlimited, LimitLOCKS in systemd)")
	}
	if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err == nil && coreReachesHandler(string(pattern), HardLimit(unix.RLIMIT_CORE)) {
		return lack("the daemon's hard limit of core dumps is 0, at which the kernel runs the host's handler (kernel.core_pattern) on the memory of programs that crash",
			"start the daemon with a limit of 1 (ulimit -Hc 1, LimitCORE=1 in systemd), at which the kernel does not run it")
	}
	if n, ok := Sysctl("/proc/sys/user/max_user_namespaces"); ok && n == 0 {
		return lack("user namespaces are switched off", "as root: sysctl user.max_user_namespaces=10000")
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if n, ok := Sysctl("/proc/sys/kernel/unprivileged_userns_clone"); ok && n == 0 {
		return lack("ordinary users may not make user namespaces", "as root: sysctl kernel.unprivileged_userns_clone=1, or run sandbar as root")
	}
	if n, ok := Sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && n == 1 {
		return lack("AppArmor keeps ordinary users from using user namespaces",
			"as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give sandbar an AppArmor profile with \"userns,\", or run it as root")
	}
	return nil
}

// coreReachesHandler reports whether a program of the host gets the memory of
// sandboxes' programs that crash: if pattern is a pipe and the limit of core
// dumps, which is 1 in a sandbox, can only be 0 (core(5)).
func coreReachesHandler(pattern string, hard uint64) bool {
	return strings.HasPrefix(pattern, "|") && hard == 0
}

// Sysctl reads a file of /proc/sys that holds a number.
func Sysctl(path string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

// KernelAtLeast compares the running kernel's version.
func KernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	parts := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	if len(parts) < 2 {
		return false
	}
	x, _ := strconv.Atoi(parts[0])
	y, _ := strconv.Atoi(strings.TrimFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' }))
	return x > major || (x == major && y >= minor)
}
