package sandbox

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// module is the one whose version is Sandbar's.
const module = "github.com/sandbar-dev/sandbar"

// newMeta is what is known of an execution before it has run. kept is the cut of each stream.
func newMeta(caps driver.Caps, language string, limits sandbar.Limits, kept int64) Meta {
	return Meta{Runtime: caps.Name, Boundary: caps.Boundary, Language: language, Versions: versionsOf(caps), Limits: limitsOf(limits, kept)}
}

// versionsOf are the versions of what programs run on.
func versionsOf(caps driver.Caps) map[string]string {
	v := map[string]string{}
	if own := ownVersion(); own != "" {
		v["sandbar"] = own
	}
	if caps.Boundary == driver.BoundaryNone || caps.Boundary == driver.BoundaryNamespaces {
		if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
			v["kernel"] = strings.TrimSpace(string(release))
		}
	}
	return v
}

// ownVersion is Sandbar's: that of the module, or the revision that it was built from.
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
