package owner

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestOwners(t *testing.T) {
	me := Name(os.Getpid())
	if me == "" || !Alive(me) {
		t.Errorf("this process is called %q; alive: %v", me, Alive(me))
	}
	if again := Name(os.Getpid()); again != me {
		t.Errorf("this process is called %q and %q", me, again)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	name := Name(other.Process.Pid)
	if name == "" || name == me || !Alive(name) {
		t.Errorf("a process that runs is called %q; alive: %v", name, Alive(name))
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// One that is dead and that nobody has waited for owns nothing any more
	// either, but when it has become so cannot be told from here.
	_ = other.Wait()
	if Alive(name) {
		t.Errorf("%q is said to be alive after its end", name)
	}
	// The pid again, of another process.
	pid, _, _ := strings.Cut(me, "-")
	if Alive(pid + "-1") {
		t.Error("a process with this one's pid that started at another time is said to be alive")
	}
	for _, strange := range []string{"", "-", "x-1", "1-x", "-5-7", "0-0", "1", "user.slice"} {
		if !Alive(strange) {
			t.Errorf("%q, which is no name, is said to be dead: what it owns would be removed", strange)
		}
	}
	if Name(-1) != "" {
		t.Errorf("no process is called %q", Name(-1))
	}
}

func TestHere(t *testing.T) {
	here := Here()
	if here == "" || here != Here() || strings.ContainsAny(here, "[]: \n") {
		t.Errorf("this place is called %q", here)
	}
}
