package escape

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// magicCases are number 89: the magic links of /proc (proc(5)) under the file API.
func magicCases() []Case {
	return []Case{
		{ID: "89-magic-links", Title: "change mode and owner through links of /proc and the file API", Claim: Files,
			Attack: afterShell(plantMagic, magicLinks)},
		{ID: "89-magic-race", Title: "flip a file and a link of /proc while the file API changes mode and owner", Claim: Files, NeedsPython: true,
			Attack: magicRace},
		{ID: "89-set-user-id", Title: "give a file the set-user-ID or set-group-ID bit by the file API", Claim: Always,
			Attack: afterShell(`echo x > f; mkdir d; echo DONE`, setUserID)},
	}
}

// plantMagic makes symbolic links to magic links of /proc, also below a directory.
const plantMagic = `mkdir t; n=0; for p in /proc/self/exe /proc/1/exe /proc/self/root /proc/1/root /proc/self/cwd /proc/1/cwd; do
	n=$((n+1)); ln -s $p m$n; ln -s $p t/m$n; done; echo DONE`

// magicLinks changes the targets of magic links, by their own names and by symbolic links to them.
// In a kernel without magic links all of it fails.
func magicLinks(ctx context.Context, s *Scene, files sandbar.FS) error {
	paths := []string{"/proc/self/exe", "/proc/1/exe", "/proc/self/root", "/proc/1/root", "/proc/self/cwd", "/proc/thread-self/exe"}
	for n := range 20 {
		paths = append(paths, fmt.Sprintf("/proc/self/fd/%d", n))
	}
	for n := range 6 {
		paths = append(paths, fmt.Sprintf("m%d", n+1))
	}
	for _, p := range paths {
		for _, recursive := range []bool{false, true} {
			if err := files.Chmod(ctx, p, 0o700, recursive); err == nil {
				s.Escape("the file API changed the mode of %s", p)
			}
			if o, ok := files.(sandbar.Owner); ok {
				if err := o.Chown(ctx, p, 1000, 1000, recursive); err == nil {
					s.Escape("the file API changed the owner of %s", p)
				}
			}
		}
		if err := files.Mkdir(ctx, p+"/escaped", 0o755, false); err == nil {
			s.Escape("the file API made a directory in %s", p)
		}
	}
	if err := files.Chmod(ctx, "t", 0o755, true); err != nil {
		return err
	}
	return stillMade(ctx, s)
}

// stillMade records an escape if no sandbox can be made any more: no program may reach the files
// that the host uses to make sandboxes.
func stillMade(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		s.Escape("no sandbox can be made any more: %v", err)
		return nil
	}
	_, err = s.Program(ctx, box, "", "echo DONE")
	return err
}

func magicRace(ctx context.Context, s *Scene) error {
	box, err := s.Box(ctx)
	if err != nil {
		return err
	}
	files := box.FS()
	out := &limitedBuffer{}
	p, err := s.Begin(ctx, box, `
os.makedirs("t/u"); open("t/n", "w").close()
targets = ["/proc/self/exe", "/proc/1/exe", "/proc/self/root", "/proc/1/root"] + ["/proc/self/fd/%d" % n for n in range(3, 12)]
say("READY")
end, i = time.time() + 3, 0
while time.time() < end:
    i += 1
    try: os.symlink(targets[i // 200 % len(targets)], "t/m")
    except FileExistsError: pass
    for k in range(200): # exchanges both names at once
        if libc.renameat2(-100, b"t/n", -100, b"t/m", 2) != 0: os.rename("t/m", "t/n"); open("t/m", "w").close()
    try: os.unlink("t/m" if os.path.islink("t/m") else "t/n")
    except OSError: pass
    if not os.path.lexists("t/n"): os.rename("t/m", "t/n")
done()`, nil, out)
	if err != nil {
		return err
	}
	if err := awaitText(ctx, out, "READY"); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { p.Wait(); close(ended) }()
	owner, _ := files.(sandbar.Owner)
	for i := 0; ; i++ {
		select {
		case <-ended:
			return afterMagic(ctx, s, box)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		// The errors are irrelevant: either side of the race may win.
		files.Chmod(ctx, "t/n", 0, false)
		files.Chmod(ctx, "t/n", 0o777, false)
		if owner != nil {
			owner.Chown(ctx, "t/n", 1000, 1000, false)
		}
		if i%8 == 0 {
			files.Chmod(ctx, "t", 0o777, true)
		}
		files.Mkdir(ctx, "t/n", 0o700, false)
		files.Mkdir(ctx, "t/n/escaped", 0o700, true)
	}
}

// afterMagic checks that the agent and its program are unchanged.
func afterMagic(ctx context.Context, s *Scene, box driver.Sandbox) error {
	if _, err := s.Program(ctx, box, "", "echo DONE"); err != nil {
		return err
	}
	return stillMade(ctx, s)
}

func setUserID(ctx context.Context, s *Scene, files sandbar.FS) error {
	for _, bit := range []fs.FileMode{fs.ModeSetuid, fs.ModeSetgid, fs.ModeSetuid | fs.ModeSetgid} {
		files.Chmod(ctx, "f", 0o755|bit, false)
		files.Chmod(ctx, "d", 0o755|bit, true)
		files.Mkdir(ctx, "e", 0o755|bit, false)
		write(ctx, files, "g", sandbar.CreateOptions{Mode: 0o755 | bit})
		write(ctx, files, "h", sandbar.CreateOptions{Mode: 0o755 | bit, Append: true})
	}
	list, err := files.ReadDir(ctx, ".", "", 100)
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			s.Escape("%s has the mode %v", f.Name, f.Mode)
		}
	}
	return nil
}
