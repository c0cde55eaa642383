package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func TestRootLandlockGolden(t *testing.T) {
	golden(t, "landlock_root.txt", landlockText(RootLandlock()))
}

func landlockText(l wire.Landlock) string {
	names := []string{"execute", "write_file", "read_file", "read_dir", "remove_dir", "remove_file", "make_char", "make_dir", "make_reg",
		"make_sock", "make_fifo", "make_block", "make_sym", "refer", "truncate", "ioctl_dev", "resolve_unix"}
	words := func(bits uint64) string {
		var out []string
		for i := range 64 {
			switch {
			case bits&(1<<i) == 0:
			case i < len(names):
				out = append(out, names[i])
			default:
				out = append(out, fmt.Sprintf("bit %d", i))
			}
		}
		return strings.Join(out, " ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "handled: %s\nscoped: %#x\n", words(l.HandledFS), l.Scoped)
	for _, r := range l.Rules {
		fmt.Fprintf(&b, "%s: %s\n", r.Path, words(r.Access))
	}
	return b.String()
}

// TestLandlockGrants: only writable directories can be written, only programs and writable
// directories can be executed, and programs cannot create devices.
func TestLandlockGrants(t *testing.T) {
	writable := []string{"/tmp", "/home/user"}
	l := Landlock(HostDirs(), writable)
	const changes = llRemoveDir | llRemoveFile | llMakeDir | llMakeReg | llMakeSock | llMakeFIFO | llMakeSym | llRefer
	for _, r := range l.Rules {
		own := slices.Contains(writable, r.Path)
		if r.Access&^l.HandledFS != 0 {
			t.Errorf("%s grants what is not handled: %#x", r.Path, r.Access&^l.HandledFS)
		}
		if r.Access&changes != 0 && !own {
			t.Errorf("%s can be changed", r.Path)
		}
		if own && r.Access&changes != changes {
			t.Errorf("%s cannot be used freely", r.Path)
		}
		if r.Access&(llMakeChar|llMakeBlock) != 0 {
			t.Errorf("devices can be made in %s", r.Path)
		}
		if r.Access&llWriteFile != 0 && !own && !strings.HasPrefix(r.Path, "/dev/") && r.Path != "/proc" {
			t.Errorf("%s can be written", r.Path)
		}
		if r.Access&llExecute != 0 && !own && !slices.Contains(HostDirs(), r.Path) {
			t.Errorf("programs in %s can be run", r.Path)
		}
	}
	if l.Scoped != llScopeAbstractUnix|llScopeSignal {
		t.Errorf("scoped: %#x", l.Scoped)
	}
}
