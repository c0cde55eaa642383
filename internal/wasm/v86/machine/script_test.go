package machine

import (
	"strings"
	"testing"
	"time"
)

func TestInitrdAddress(t *testing.T) {
	for _, tc := range []struct{ memory, size, want int64 }{
		{64 << 20, 4096, 64<<20 - 4096}, {64 << 20, 1, 64<<20 - 4096}, {64 << 20, 4097, 64<<20 - 8192},
		{2 << 30, 4096, 0x37ffe000}, {1 << 20, 2 << 20, 0},
	} {
		if got := initrdAddress(tc.memory, tc.size); got != tc.want {
			t.Errorf("%d bytes in %d are at %#x, want %#x", tc.size, tc.memory, got, tc.want)
		}
	}
}

// A script of another version, without the text of a patch, is refused.
func TestPatchRefuses(t *testing.T) {
	good := `import("node:a"),import("node:b");c&&(h=67108864,e=c.byteLength;a.initrd?67108864:1048576`
	if _, err := patch(good); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", strings.Replace(good, "node:", "deno:", 1), good + good} {
		if _, err := patch(bad); err == nil {
			t.Errorf("%q was patched", bad)
		}
	}
}

// Timers that are due are called in order and with their arguments, unless they were cleared. Their
// exceptions are reported.
func TestTimers(t *testing.T) {
	now := 0.0
	s, err := newScript(func() float64 { return now })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.vm.RunString(`var said = [];
		setTimeout(x => said.push(x), 20, "late"); setTimeout(x => said.push(x), 10, "a"); setTimeout(x => said.push(x), 10, "b");
		setImmediate(() => said.push("now")); clearTimeout(setTimeout(() => said.push("never"), 1));
		Promise.resolve().then(() => said.push("promise"))`); err != nil {
		t.Fatal(err)
	}
	said := func() string {
		v, err := s.vm.RunString(`said.join()`)
		if err != nil {
			t.Fatal(err)
		}
		return v.String()
	}
	for _, step := range []struct {
		at   float64
		want string
		next time.Duration
	}{{0, "promise,now", 10 * time.Millisecond}, {10, "promise,now,a,b", 10 * time.Millisecond}, {25, "promise,now,a,b,late", -1}} {
		now = step.at
		if err := s.run(); err != nil {
			t.Fatal(err)
		}
		if got := said(); got != step.want {
			t.Errorf("at %v: %s, want %s", now, got, step.want)
		}
		if next, ok := s.next(); ok != (step.next >= 0) || ok && next != step.next {
			t.Errorf("at %v: next in %v, %v", now, next, ok)
		}
	}
	for _, bad := range []string{`setTimeout(() => { throw new Error("thrown") }, 0)`, `Promise.reject(new Error("thrown"))`} {
		s, err := newScript(func() float64 { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.vm.RunString(bad); err != nil {
			t.Fatal(err)
		}
		if err := s.run(); err == nil || !strings.Contains(err.Error(), "thrown") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// The clock advances only while the machine runs.
func TestClock(t *testing.T) {
	var c clock
	c.set(time.Hour)
	if c.duration() != time.Hour || c.now() != 3600_000 {
		t.Errorf("set to an hour, it is %v", c.duration())
	}
	c.run()
	c.run()
	for c.duration() == time.Hour { // a clock that does not go is a test that does not end
	}
	c.pause()
	stopped := c.duration()
	c.advance(time.Minute)
	if got := c.duration(); got != stopped+time.Minute || stopped <= time.Hour {
		t.Errorf("after %v and a minute it is %v", stopped, got)
	}
}
