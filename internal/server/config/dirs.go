package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// defaultFile returns the path of the configuration file if none is named, "" without a home
// directory.
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
	// on systems whose temporary directory is per user
	return filepath.Join(os.TempDir(), "sandbar")
}

// defaultStateDir returns "" for a user without a home directory. That is an error only if state is
// needed.
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

// homeDir returns the user's home directory, "" if the environment has none.
func homeDir(vars map[string]string) string {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := vars[name]; filepath.IsAbs(dir) {
			return dir
		}
	}
	return ""
}

// PrivateDir creates the directory at path with mode 0700, and missing parents. An existing one
// must be a directory and not a link, belong to this process's user, and be closed to all others;
// otherwise the error is Denied and nothing changes. setting is the name of the setting for errors.
func PrivateDir(path, setting string) error {
	refuse := func(why, fix string) error {
		return &sandbar.Error{Code: sandbar.Denied, Field: setting, Message: setting + " " + printable(path) + " " + why, Fix: fix}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return refuse("cannot be made: "+reason(err), "set "+setting+" to a directory that can be created")
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return refuse("cannot be made: "+reason(err), "set "+setting+" to a directory that can be created")
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
