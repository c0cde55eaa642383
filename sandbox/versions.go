package sandbox

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// module is the path of Sandbar's module.
const module = "github.com/sandbar-dev/sandbar"

// newMeta makes the Meta of an execution before its run. version is Rules.Version. kept is the
// largest output kept of each stream.
func newMeta(caps driver.Caps, version, language string, limits sandbar.Limits, kept int64) Meta {
	return Meta{Runtime: caps.Name, Boundary: caps.Boundary, Language: language, Versions: versionsOf(caps, version), Limits: limitsOf(limits, kept)}
}

// versionsOf returns the versions of Sandbar and, if programs run on it, of the host's kernel.
func versionsOf(caps driver.Caps, own string) map[string]string {
	v := map[string]string{}
	if own == "" {
		own = ownVersion()
	}
	if own != "" {
		v["sandbar"] = own
	}
	if caps.Boundary == driver.BoundaryNone || caps.Boundary == driver.BoundaryNamespaces {
		if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
			v["kernel"] = strings.TrimSpace(string(release))
		}
	}
	return v
}

// ownVersion returns Sandbar's version: that of the module, or the revision it was built from.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module }); i >= 0 {
		return info.Deps[i].Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
