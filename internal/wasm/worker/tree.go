package worker

import (
	"io/fs"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/memfs"
)

// marker begins the file of a program that is part of the worker; its name
// follows. So a program can be found in PATH, listed, linked to and copied.
const marker = "\x7fsandbar\n"

// programText is the file of a program.
func programText(name string) []byte { return []byte(marker + name + "\n") }

// builtin returns the name in the file of a program.
func builtin(text []byte) (name string, ok bool) {
	rest, ok := strings.CutPrefix(string(text), marker)
	return strings.TrimSuffix(rest, "\n"), ok
}

// buildTree fills a file system with what a sandbox begins with.
func buildTree(f *memfs.FS, programs []string) error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{
		{"/bin", 0o755}, {"/dev", 0o755}, {"/etc", 0o755}, {"/home", 0o755}, {"/home/user", 0o755},
		{"/lib", 0o755}, {"/proc", 0o555}, {"/root", 0o700}, {"/run", 0o755}, {"/tmp", 0o777 | fs.ModeSticky},
		{"/usr", 0o755}, {"/usr/lib", 0o755}, {"/usr/local", 0o755}, {"/usr/local/bin", 0o755}, {"/usr/share", 0o755},
		{"/var", 0o755}, {"/var/tmp", 0o777 | fs.ModeSticky}, {"/workspace", 0o755},
	} {
		if err := f.Mkdir("/", d.path, d.mode); err != nil {
			return err
		}
	}
	if err := f.Symlink("../bin", "/", "/usr/bin"); err != nil {
		return err
	}
	for path, device := range map[string]memfs.Device{
		"/dev/null": memfs.Null, "/dev/zero": memfs.Zero, "/dev/full": memfs.Full,
		"/dev/random": memfs.Random, "/dev/urandom": memfs.Random,
	} {
		if err := f.Mknod("/", path, device, 0o666); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{
		"/etc/passwd":   "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"/etc/group":    "root:x:0:\nuser:x:1000:\n",
		"/etc/hosts":    "127.0.0.1\tlocalhost\n",
		"/etc/hostname": "sandbox\n",
	} {
		if err := f.WriteFile("/", path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := buildLibrary(f); err != nil {
		return err
	}
	for _, name := range programs {
		if err := f.WriteFile("/", "/bin/"+name, programText(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}
