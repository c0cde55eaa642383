package escape

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// fileCases are numbers 1 to 18: attacks on files through the file API and from inside.
func fileCases() []Case {
	return []Case{
		{ID: "01-link-read", Title: "read a host file through a planted link and the file API", Claim: Files, Leaks: true,
			Attack: afterShell(`ln -s "$BAIT_FILE" a; echo DONE`, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				s.readsSecret(ctx, fs, "a")
				return nil
			})},
		{ID: "02-link-write", Title: "write into a host directory through a planted link and the file API", Claim: Files, Leaks: true,
			Attack: afterShell(`ln -s "$BAIT_DIR" d; echo DONE`, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				write(ctx, fs, "d/planted", sandbar.CreateOptions{})
				write(ctx, fs, "d/below/planted", sandbar.CreateOptions{Parents: true})
				return nil
			})},
		{ID: "03-swap-race", Title: "flip a directory and a link while the file API reads, writes and removes", Claim: Files, NeedsPython: true,
			Attack: swapRace},
		{ID: "04-dangling-link", Title: "upload over a link to a file that does not exist yet", Claim: Always,
			Attack: afterShell(`ln -s "$BAIT_DIR/planted" x; echo DONE`, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				write(ctx, fs, "x", sandbar.CreateOptions{})
				return nil
			})},
		{ID: "05-paths", Title: "reach a host file by odd paths and the file API", Claim: Files, Leaks: true,
			Attack: afterShell(`echo DONE`, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				for _, p := range oddPaths(s.Bait.File) {
					s.readsSecret(ctx, fs, p)
				}
				return nil
			})},
		{ID: "06-remove-links", Title: "recursive removal of a tree with links to the host", Claim: Always,
			Attack: afterShell(plantLinks, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				if err := fs.Remove(ctx, "t", true); err != nil {
					return err
				}
				if _, err := fs.Stat(ctx, "t"); sandbar.CodeOf(err) != sandbar.NotFound {
					return fmt.Errorf("the tree is still there: %v", err)
				}
				return nil
			})},
		{ID: "07-chmod-links", Title: "recursive change of mode over links to the host", Claim: Always,
			Attack: afterShell(plantLinks, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				return fs.Chmod(ctx, "t", 0o700, true)
			})},
		{ID: "08-hard-link", Title: "hard link to a host file", Claim: Files,
			Shell: `if ln "$BAIT_FILE" h 2>/dev/null; then echo ESCAPED linked; rm -f h; fi; echo DONE`},
		{ID: "11-special-files", Title: "FIFO, device and directory where the file API expects a file", Claim: Always,
			Attack: afterShell(`mkfifo p && ln -s p lp; ln -s /dev/zero z && mkdir d && echo DONE`, specialFiles)},
		{ID: "12-big-trees", Title: "20,000 entries, and 1,500 directories one in the other", Claim: Always, NeedsPython: true,
			Attack: bigTrees},
		{ID: "14-home-replaced", Title: "the home directory itself replaced by a link to the host", Claim: Files, Leaks: true,
			Attack: afterShell(`cd /; mv "$HOME" "$HOME.old" && ln -s "$BAIT_DIR" "$HOME"; echo DONE`, func(ctx context.Context, s *Scene, fs sandbar.FS) error {
				write(ctx, fs, "planted", sandbar.CreateOptions{})
				return nil
			})},
		{ID: "15-host-file", Title: "read a host file, write to a host directory", Claim: Files, Leaks: true,
			Shell: `cat "$BAIT_FILE" 2>&1; (echo x > "$BAIT_DIR/planted") 2>&1; echo DONE`},
		{ID: "15-host-secrets", Title: "password hashes, other people's homes, state of services", Claim: Files, Python: `
# An image may have such files and directories of its own. The host's are known by the
# time at which they were changed, to the nanosecond.
for entry in filter(None, env("HOST_SECRETS", "").split(":")):
    path, _, changed = entry.rpartition("=")
    try:
        if os.stat(path).st_mtime_ns != int(changed): held(path, "is not the host's"); continue
        if os.path.isdir(path):
            if path != HOME and os.listdir(path): escaped(path, "holds", len(os.listdir(path)), "names")
        else:
            open(path, "rb").read(1)
            escaped("read", path)
    except OSError as e: held(path, why(e.errno))
done()`},
		{ID: "15-outer-environ", Title: "environment of a host process", Claim: Processes, Leaks: true,
			Shell: `tr '\0' '\n' < "/proc/$BAIT_PID/environ"; echo DONE`},
		{ID: "15-outer-root", Title: "a host file through the root or the directory of any process", Claim: Files, Leaks: true, Python: `
for pid in pids():
    for way in ["root", "cwd/" + "../" * 20]:
        try: say(open("/proc/%d/%s/%s" % (pid, way, env("BAIT_FILE"))).read())
        except (OSError, UnicodeError): pass
done()`},
		{ID: "15-outer-memory", Title: "memory, descriptors and file of a process outside", Claim: Processes, Leaks: true, Python: `
for pid in [1] + ([BAIT_PID] if host_visible() else []):
    if pid == os.getpid(): continue
    # The first process of a machine is inside the boundary, with the user id of programs. They must not
    # reach its memory, but can open other files of it.
    names = ["mem", "environ", "auxv", "maps", "pagemap"] + ([] if env("OWN_KERNEL") else ["syscall", "stack", "io", "personality"])
    for name in names:
        attempt("open /proc/%d/%s" % (pid, name), lambda: os.close(os.open("/proc/%d/%s" % (pid, name), os.O_RDONLY)))
    attempt("write /proc/%d/mem" % pid, lambda: os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR)))
    if not env("OWN_KERNEL"): attempt("list /proc/%d/fd" % pid, os.listdir, "/proc/%d/fd" % pid)
    for name in ["exe", "cwd", "root", "ns/mnt", "ns/pid"]:
        def follow():
            to = os.readlink("/proc/%d/%s" % (pid, name))
            if name.startswith("ns/") and to == os.readlink("/proc/self/" + name): raise OSError(0, "it is this process's own")
        attempt("follow /proc/%d/%s" % (pid, name), follow)
done()`},
		{ID: "16-kernel-settings", Title: "open the kernel's settings for writing", Claim: Kernel, Python: `
def settings():
    yield from ["/proc/sysrq-trigger", "/proc/mtrr", "/proc/irq/default_smp_affinity", "/proc/kcore", "/proc/scsi/scsi", "/proc/timer_stats",
        "/proc/latency_stats", "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state"]
    for top, budget in [("/proc/sys", 5000), ("/sys/kernel", 2000), ("/sys/module", 2000)]:
        for where, _, names in os.walk(top):
            for n in names:
                if budget == 0: break
                budget -= 1
                yield os.path.join(where, n)
# Opened, never written to: what can be opened could be written.
for path in settings():
    try: fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError: continue
    if os.fstat(fd).st_rdev != os.makedev(1, 3): escaped("open for writing:", path) # else it is masked
    os.close(fd)
done()`},
		{ID: "17-devices", Title: "make a device node; open a device of the host", Claim: Kernel, Python: `
for where in [HOME, "/tmp", "/dev", "/dev/shm"]:
    for kind, major, minor in [(stat.S_IFBLK, 8, 0), (stat.S_IFBLK, 259, 0), (stat.S_IFBLK, 254, 0), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 11), (stat.S_IFCHR, 10, 232)]:
        path = os.path.join(where, "escape-node")
        try: os.mknod(path, kind | 0o600, os.makedev(major, minor))
        except OSError: continue
        escaped("made the device %d:%d in %s" % (major, minor, where))
        os.unlink(path)
# null zero full random urandom tty ptmx, and the own pseudo terminals
harmless = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
for where, dirs, names in os.walk("/dev"):
    for n in names:
        path = os.path.join(where, n)
        try: st = os.stat(path)
        except OSError: continue
        if not (stat.S_ISBLK(st.st_mode) or stat.S_ISCHR(st.st_mode)): continue
        dev = (os.major(st.st_rdev), os.minor(st.st_rdev))
        if stat.S_ISCHR(st.st_mode) and (dev in harmless or dev[0] == 136): continue
        attempt("open " + path, lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
for path in ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/loop-control", "/dev/vsock"]:
    attempt("open " + path, lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))
done()`},
	}
}

// plantLinks makes a directory tree with symbolic links to the bait.
const plantLinks = `mkdir -p t/u/v && ln -s "$BAIT_DIR" t/d && ln -s "$BAIT_FILE" t/u/f && ln -s / t/u/v/r && echo x > t/u/x && echo DONE`

// afterShell makes an Attack that runs a shell program and then uses the file API.
func afterShell(shell string, then func(context.Context, *Scene, sandbar.FS) error) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		box, err := s.Box(ctx)
		if err != nil {
			return err
		}
		if _, err := s.Program(ctx, box, "", shell); err != nil {
			return err
		}
		return then(ctx, s, box.FS())
	}
}

// readsSecret reads a file through the API. The bait's secret in it is an escape.
func (s *Scene) readsSecret(ctx context.Context, fs sandbar.FS, path string) {
	f, err := fs.Open(ctx, path)
	if err != nil {
		return
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 1<<16))
	if strings.Contains(string(b), s.Bait.Secret) {
		s.Escape("the file API gave the bait's secret for %s", sandbar.Quote(path, 100))
	}
}

// write tries to write a file through the API. Bait.damage shows the effect.
func write(ctx context.Context, fs sandbar.FS, path string, opt sandbar.CreateOptions) {
	w, err := fs.Create(ctx, path, opt)
	if err != nil {
		return
	}
	w.Write([]byte("planted"))
	if w.Commit() != nil {
		w.Abort()
	}
}

func oddPaths(file string) []string {
	up := strings.Repeat("../", 40)
	return []string{file, up + file, "./" + up + file[1:], "/" + up + file[1:], "//" + file, "/./" + file + "/",
		"/proc/self/root" + file, "/proc/self/cwd/" + up + file[1:], "/proc/1/root" + file, "/dev/fd/../" + up + file[1:],
		strings.ReplaceAll(up+file[1:], "../", "%2e%2e%2f"), strings.ReplaceAll(up+file[1:], "/", `\`), file + "\x00.txt", "~" + file, "file://" + file}
}

func swapRace(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	fs := box.FS()
	out := &limitedBuffer{}
	p, err := s.Begin(ctx, box, `
os.mkdir("d"); open("d/secret", "w").write("inner")
say("READY")
end = time.time() + 3
while time.time() < end:
    try:
        os.rename("d", "kept"); os.symlink(env("BAIT_DIR"), "d"); os.unlink("d"); os.rename("kept", "d")
    except OSError: # the file API was here
        try: os.mkdir("d")
        except OSError: pass
done()`, nil, out)
	if err != nil {
		return err
	}
	if err := awaitText(ctx, out, "READY"); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { p.Wait(); close(ended) }()
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-ended:
			return nil
		default:
		}
		s.readsSecret(ctx, fs, "d/"+baitFile)
		write(ctx, fs, fmt.Sprintf("d/planted%d", i%8), sandbar.CreateOptions{})
		fs.Chmod(ctx, "d", 0o755, true)
		fs.Remove(ctx, "d/"+baitFile, false)
		if i%16 == 0 {
			fs.Remove(ctx, "d", true)
		}
	}
	return ctx.Err()
}

// awaitText waits until a program has printed a word.
func awaitText(ctx context.Context, out *limitedBuffer, word string) error {
	for !strings.Contains(out.String(), word) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the program never printed %s, but: %s", word, out.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// specialFiles opens files that are not regular. A success is a failure, and so is a call that
// hangs, which caseBound ends.
func specialFiles(ctx context.Context, s *Scene, fs sandbar.FS) error {
	names := []string{"z", "d", "/dev/null", "/dev"}
	// If mkfifo is impossible, no FIFO can be opened.
	_, err := fs.Stat(ctx, "p")
	pipes := sandbar.CodeOf(err) != sandbar.NotFound
	if pipes {
		names = append(names, "p", "lp")
	}
	for _, name := range names {
		err := promptly(ctx, func() error {
			f, err := fs.Open(ctx, name)
			if err == nil {
				f.Close()
			}
			return err
		})
		if err == nil {
			s.Escape("the file API opened %s as a regular file", name)
		} else if code := sandbar.CodeOf(err); code != sandbar.Conflict && code != sandbar.Denied {
			return fmt.Errorf("opening %s: %v (code %v)", name, err, code)
		}
	}
	if !pipes {
		return nil
	}
	err = promptly(ctx, func() error {
		w, err := fs.Create(ctx, "p", sandbar.CreateOptions{Append: true})
		if err == nil {
			w.Abort()
		}
		return err
	})
	if err == nil {
		s.Escape("the file API opened a FIFO for appending")
	}
	return nil
}

// promptly runs f and gives up if it hangs.
func promptly(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("hangs: %w", ctx.Err())
	}
}

func bigTrees(ctx context.Context, s *Scene) error {
	const entries, deep = 20000, 1500
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	fs := box.FS()
	_, err = s.Program(ctx, box, fmt.Sprintf(`
os.mkdir("big")
for i in range(%d): os.close(os.open("big/%%05d" %% i, os.O_CREAT | os.O_WRONLY))
os.mkdir("deep"); os.chdir("deep")
for i in range(%d): os.mkdir("d"); os.chdir("d")
done()`, entries, deep), "")
	if err != nil {
		return err
	}
	if err := countPages(ctx, fs, "big", entries); err != nil {
		return err
	}
	for _, tree := range []string{"big", "deep"} {
		if err := fs.Remove(ctx, tree, true); err != nil {
			return fmt.Errorf("removing %s: %w", tree, err)
		}
	}
	return nil
}

// countPages lists a directory page by page and checks that every name appears once, in order.
func countPages(ctx context.Context, fs sandbar.FS, dir string, want int) error {
	got, after := 0, ""
	for {
		page, err := fs.ReadDir(ctx, dir, after, 3000)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		if len(page) > 3000 {
			return fmt.Errorf("a page of 3000 has %d entries", len(page))
		}
		for _, e := range page {
			if e.Name <= after {
				return fmt.Errorf("entry %q comes after %q", e.Name, after)
			}
			after = e.Name
		}
		got += len(page)
	}
	if got != want {
		return fmt.Errorf("%d of %d entries were listed", got, want)
	}
	return nil
}
