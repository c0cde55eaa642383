package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// defaultFile is where a configuration is looked for when none is named; "" if
// there is no such place.
func defaultFile(vars map[string]string) string {
	if os.Geteuid() == 0 {
		return "/etc/sandbar/config.yaml"
	}
	dir := vars["XDG_CONFIG_HOME"]
	if !filepath.IsAbs(dir) {
		home := homeDir(vars)
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "sandbar", "config.yaml")
}

func defaultRuntimeDir(vars map[string]string) string {
	if os.Geteuid() == 0 {
		return "/run/sandbar"
	}
	if dir := vars["XDG_RUNTIME_DIR"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, "sandbar")
	}
	if uid := os.Geteuid(); uid >= 0 {
		return filepath.Join(os.TempDir(), "sandbar-"+strconv.Itoa(uid))
	}
	return filepath.Join(os.TempDir(), "sandbar") // a system whose temporary directory is the user's own
}

// defaultStateDir is "" for a user without a home directory: only what needs
// state is an error then.
func defaultStateDir(vars map[string]string) string {
	if os.Geteuid() == 0 {
		return "/var/lib/sandbar"
	}
	if dir := vars["XDG_STATE_HOME"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, "sandbar")
	}
	if home := homeDir(vars); home != "" {
		return filepath.Join(home, ".local", "state", "sandbar")
	}
	return ""
}

// homeDir is the user's home directory, "" if the environment has none.
func homeDir(vars map[string]string) string {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := vars[name]; filepath.IsAbs(dir) {
			return dir
		}
	}
	return ""
}

// PrivateDir makes the directory at path with mode 0700, and those above it as
// needed. One that is there already must be a directory, not a link to one,
// belong to the user of this process and be closed to everybody else;
// otherwise the error is Denied, and nothing is changed. setting names the
// setting at fault in the error.
func PrivateDir(path, setting string) error {
	refuse := func(why, fix string) error {
		return &sandbar.Error{Code: sandbar.Denied, Field: setting, Message: setting + " " + printable(path) + " " + why, Fix: fix}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return refuse("cannot be made: "+reason(err), "set "+setting+" to a directory that can be made")
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return refuse("cannot be made: "+reason(err), "set "+setting+" to a directory that can be made")
	}
	info, err := os.Lstat(path)
	if err != nil {
		return refuse("cannot be looked at: "+reason(err), "set "+setting+" to another directory")
	}
	if !info.IsDir() {
		return refuse("is not a directory ("+info.Mode().Type().String()+")", "remove it, or set "+setting+" to another directory")
	}
	if why, fix := foreign(info); why != "" {
		return refuse(why, fix)
	}
	return nil
}
