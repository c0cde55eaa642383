package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func someImage() ImageRootOptions {
	return ImageRootOptions{Dir: "/var/lib/images/x/root", Disk: 64 << 20, Inodes: 1000, Hostname: "sandbox", MachineID: "0123456789abcdef0123456789abcdef"}
}

func TestImageRootGolden(t *testing.T) {
	steps, err := ImageRoot(someImage())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "root_image.txt", planText(steps))
}

// checkImagePlan checks a plan against the invariants of image plans.
func checkImagePlan(o ImageRootOptions, steps []wire.Mount) error {
	overlay := slices.IndexFunc(steps, func(m wire.Mount) bool { return m.Kind == wire.MountOverlay })
	if overlay < 0 {
		return fmt.Errorf("there is no overlay")
	}
	ours := map[string]bool{} // below the root: directories that are not the image's
	inRoot := func(p string) (string, bool) {
		rest, ok := strings.CutPrefix(p, imageRoot)
		return rest, ok && (rest == "" || rest[0] == '/')
	}
	for i, m := range steps {
		if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target {
			return fmt.Errorf("step %d: the target %q is not a plain absolute path", i, m.Target)
		}
		if m.Kind == wire.MountBind {
			if !strings.HasPrefix(m.Source, "/dev/") || m.Flags&wire.MountReadOnly == 0 {
				return fmt.Errorf("step %d: %s of the host is bound", i, m.Source)
			}
		}
		if m.Kind == wire.MountAttach && (m.Source != o.Dir || m.Target != imageLower || m.Flags&readOnly != readOnly) {
			return fmt.Errorf("step %d: %s is attached at %s with flags %x", i, m.Source, m.Target, m.Flags)
		}
		if name, ok := strings.CutPrefix(m.Target, imageUpper); ok && i < overlay {
			ours[name] = true
			if _, under := inRoot(m.Target); under {
				return fmt.Errorf("step %d: the upper directory lies in the root", i)
			}
			continue
		}
		for _, p := range []string{m.Target, innerSource(m)} {
			rest, ok := inRoot(p)
			if !ok || rest == "" || ours[rest] || strings.HasPrefix(rest, "/dev/") || strings.HasPrefix(rest, "/proc/") {
				continue
			}
			return fmt.Errorf("step %d: %s %s resolves a name in the image", i, m.Kind, p)
		}
		switch m.Kind {
		case wire.MountSymlink, wire.MountFile, wire.MountMkdir:
			if rest, ok := inRoot(m.Target); ok && i > overlay && rest != "/dev" && !strings.HasPrefix(rest, "/dev/") {
				return fmt.Errorf("step %d: %s is written in the image", i, rest)
			}
		}
	}
	for _, name := range []string{"/dev", "/proc"} {
		if !slices.ContainsFunc(steps[overlay:], func(m wire.Mount) bool {
			return m.Target == imageRoot+name && (m.Kind == wire.MountTmpfs || m.Kind == wire.MountProc)
		}) {
			return fmt.Errorf("%s is the image's", name)
		}
	}
	if last := steps[len(steps)-1]; last.Kind != wire.MountRoot || last.Target != imageRoot {
		return fmt.Errorf("the plan ends with %+v", last)
	}
	return nil
}

// innerSource returns the path in the new root from which a step mounts.
func innerSource(m wire.Mount) string {
	if m.Kind == wire.MountBindInner {
		return m.Source
	}
	return ""
}

func TestImageRootPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := someImage()
		o.Dir = rapid.SampledFrom([]string{"", "/var/lib/x", "/tmp/images/y"}).Draw(t, "dir")
		o.Disk = rapid.OneOf(rapid.Just(int64(sandbar.Unlimited)), rapid.Int64Min(1)).Draw(t, "disk")
		o.Inodes = rapid.OneOf(rapid.Just(int64(sandbar.Unlimited)), rapid.Int64Min(1)).Draw(t, "inodes")
		if rapid.Bool().Draw(t, "no machine id") {
			o.MachineID = ""
		}
		steps, err := ImageRoot(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkImagePlan(o, steps); err != nil {
			t.Fatal(err)
		}
		if first := steps[0]; first.Kind != wire.MountTmpfs || first.Size <= 0 || first.Inodes <= 0 {
			t.Fatalf("what is written is not bounded: %+v", first)
		}
	})
}

// The check of plans reports plans that break the invariants.
func TestImagePlansAreChecked(t *testing.T) {
	for name, spoil := range map[string]func([]wire.Mount) []wire.Mount{
		"a file in the image": func(s []wire.Mount) []wire.Mount {
			return slices.Insert(s, len(s)-1, wire.Mount{Kind: wire.MountFile, Target: imageRoot + "/etc/hosts"})
		},
		"a mount on the image's": func(s []wire.Mount) []wire.Mount {
			return slices.Insert(s, len(s)-1, wire.Mount{Kind: wire.MountBindInner, Source: "/tmp", Target: imageRoot + "/var/tmp"})
		},
		"a bind of the image's": func(s []wire.Mount) []wire.Mount {
			return slices.Insert(s, len(s)-1, wire.Mount{Kind: wire.MountBindInner, Source: imageRoot + "/usr", Target: imageRoot + "/home"})
		},
		"the host": func(s []wire.Mount) []wire.Mount {
			return slices.Insert(s, 1, wire.Mount{Kind: wire.MountBind, Source: "/usr", Target: "/x", Flags: readOnly})
		},
		"a writable image": func(s []wire.Mount) []wire.Mount {
			for i := range s {
				if s[i].Kind == wire.MountAttach {
					s[i].Flags = 0
				}
			}
			return s
		},
		"no root": func(s []wire.Mount) []wire.Mount { return s[:len(s)-1] },
		"no overlay": func(s []wire.Mount) []wire.Mount {
			return slices.DeleteFunc(s, func(m wire.Mount) bool { return m.Kind == wire.MountOverlay })
		},
		"no /proc": func(s []wire.Mount) []wire.Mount {
			return slices.DeleteFunc(s, func(m wire.Mount) bool { return m.Kind == wire.MountProc })
		},
	} {
		steps, err := ImageRoot(someImage())
		if err != nil {
			t.Fatal(err)
		}
		if checkImagePlan(someImage(), spoil(steps)) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestImageRootRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*ImageRootOptions){
		"no disk":               func(o *ImageRootOptions) { o.Disk = 0 },
		"negative disk":         func(o *ImageRootOptions) { o.Disk = -2 },
		"no inodes":             func(o *ImageRootOptions) { o.Inodes = 0 },
		"negative inodes":       func(o *ImageRootOptions) { o.Inodes = -7 },
		"no host name":          func(o *ImageRootOptions) { o.Hostname = "" },
		"a line in a host name": func(o *ImageRootOptions) { o.Hostname = "a\n127.0.0.2 evil" },
		"short machine id":      func(o *ImageRootOptions) { o.MachineID = "abc" },
	} {
		o := someImage()
		spoil(&o)
		if steps, err := ImageRoot(o); sandbar.CodeOf(err) != sandbar.Invalid || steps != nil {
			t.Errorf("%s: %d steps, %v; want an Invalid error", name, len(steps), err)
		}
	}
}

// All of the root belongs to the sandbox, and programs cannot create devices.
func TestRootLandlock(t *testing.T) {
	l := RootLandlock()
	var root uint64
	for _, r := range l.Rules {
		if r.Path == "/" {
			root |= r.Access
		}
		if r.Access&(llMakeChar|llMakeBlock) != 0 {
			t.Errorf("devices can be made in %s", r.Path)
		}
	}
	if root&llWritable != llWritable || root&llIoctlDev != 0 || l.HandledFS != llEverything || l.Scoped == 0 {
		t.Errorf("rights over the root: %x; %x, %x", root, l.HandledFS, l.Scoped)
	}
}
