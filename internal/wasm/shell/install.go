package shell

import (
	"io/fs"
	"maps"
	"slices"

	"github.com/sandbar-dev/sandbar/internal/wasm/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/tools"
)

// marker is the interpreter of a file that represents a program: the line is "#!program NAME".
const marker = "program"

// Install creates what programs expect in an empty file system: the usual directories, devices, a
// user, and a file in /usr/bin for each utility and each of programs. Commands are thus found,
// listed and removed as files.
func Install(f *memfs.FS, programs map[string]Program) error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{
		{"/dev", 0o755}, {"/dev/fd", 0o755}, {"/etc", 0o755}, {"/home", 0o755}, {tools.Home, 0o755}, {"/opt", 0o755}, {"/proc", 0o755},
		{"/root", 0o755}, {"/tmp", 0o777 | fs.ModeSticky}, {"/usr", 0o755}, {"/usr/bin", 0o755}, {"/usr/local", 0o755}, {"/usr/local/bin", 0o755},
		{"/var", 0o755}, {"/var/tmp", 0o777 | fs.ModeSticky}, {"/srv", 0o755}, {"/mnt", 0o755}, {"/usr/lib", 0o755},
	} {
		if err := f.Mkdir("/", d.path, d.mode); err != nil {
			return err
		}
	}
	for _, l := range [][2]string{{"usr/bin", "/bin"}, {"usr/bin", "/sbin"}, {"usr/lib", "/lib"}} {
		if err := f.Symlink(l[0], "/", l[1]); err != nil {
			return err
		}
	}
	devices := map[string]memfs.Device{"null": memfs.Null, "zero": memfs.Zero, "full": memfs.Full, "random": memfs.Random, "urandom": memfs.Random,
		"stdin": memfs.Null, "stdout": memfs.Null, "stderr": memfs.Null}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		if err := f.Mknod("/dev", name, devices[name], 0o666); err != nil {
			return err
		}
	}
	if err := installEtc(f); err != nil {
		return err
	}
	names := append(slices.Collect(maps.Keys(tools.Programs())), "sh", "bash", "dash")
	names = slices.AppendSeq(names, maps.Keys(programs))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := f.WriteFile("/usr/bin", name, []byte("#!"+marker+" "+name+"\n"), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func installEtc(f *memfs.FS) error {
	for _, file := range []struct{ name, text string }{
		{"passwd", "root:x:0:0:root:/root:/bin/sh\n" + userName + ":x:" + userID + ":" + userID + "::" + tools.Home + ":/bin/sh\n"},
		{"group", "root:x:0:\n" + userName + ":x:" + userID + ":\n"},
		{"hostname", tools.HostName + "\n"},
		{"hosts", "127.0.0.1\tlocalhost " + tools.HostName + "\n"},
		{"os-release", "NAME=\"Sandbar\"\nID=sandbar\nPRETTY_NAME=\"Sandbar, a sandbox without a kernel\"\n"},
	} {
		if err := f.WriteFile("/etc", file.name, []byte(file.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
