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

// ParsePaths parses the option with additional host directories: colon-separated, each valid for
// policy.CheckExtra and existing.
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
				Message: "host path " + sandbar.Quote(p, 200) + " does not exist or cannot be read", Err: err, Fix: "create it, or remove it from the option paths"}
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// OpenImage opens the image of a sandbox. nil means the image "host".
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

// ImageNote says why images do not work on this kernel, "" if they do.
func ImageNote() string {
	if KernelAtLeast(6, 6) {
		return ""
	}
	return "sandboxes can be made of the image \"host\" only: others need Linux 6.6, where tmpfs has user extended attributes, which overlayfs needs"
}

// LocalNote says why programs cannot write in /usr/local of the image "host" on this host, "" if no
// reason is known.
func LocalNote() string {
	const what = "/usr/local is read-only in sandboxes of the image \"host\": "
	if !KernelAtLeast(6, 6) {
		return what + "an overlay over it needs Linux 6.6, where tmpfs has user extended attributes, which overlayfs needs"
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

// minTags is the number of programs that one sandbox must be able to start. The agent refuses
// fewer.
const minTags = 1 << 16

// Probe checks the requirements of a driver that uses namespaces. It returns Unsupported if one is
// missing.
func Probe(driver string) error {
	lack := func(what, fix string) error {
		return &sandbar.Error{Code: sandbar.Unsupported, Message: "the " + driver + " driver cannot run here: " + what, Fix: fix}
	}
	if !KernelAtLeast(5, 12) {
		return lack("the kernel is older than 5.12 and has no mount_setattr(2)", "use a newer kernel, or another driver")
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return lack("the kernel has no user namespaces", "use a kernel with CONFIG_USER_NS, or another driver")
	}
	if n := HardLimit(unix.RLIMIT_LOCKS); n < minTags {
		return lack("the limit of file locks is "+strconv.FormatUint(n, 10)+"; the agent numbers programs with values up to that limit",
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
		return lack("ordinary users may not create user namespaces", "as root: sysctl kernel.unprivileged_userns_clone=1, or run sandbar as root")
	}
	if n, ok := Sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && n == 1 {
		return lack("AppArmor denies user namespaces to ordinary users",
			"as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give sandbar an AppArmor profile with \"userns,\", or run it as root")
	}
	return nil
}

// coreReachesHandler reports whether a crash of a sandboxed program would start the host's core
// handler with the program's memory: core_pattern is a pipe, and RLIMIT_CORE cannot be 1, the value
// in sandboxes, because the daemon's hard limit is 0 (core(5)).
func coreReachesHandler(pattern string, hard uint64) bool {
	return strings.HasPrefix(pattern, "|") && hard == 0
}

// Sysctl reads a number from a file of /proc/sys.
func Sysctl(path string) (int, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

// KernelAtLeast reports whether the running kernel has at least this version.
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
