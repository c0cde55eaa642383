package vm

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// TestOutOfMemory checks that a program without memory ends soon, as out of memory, and that
// another program of its machine and the machine itself go on.
func TestOutOfMemory(t *testing.T) {
	d := newDriver(t, testOptions(t))
	box := newBox(t, d, "memory")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	other, err := box.Start(ctx, sandbar.Cmd{Args: []string{"sleep", "1000"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		"x = []\nwhile True: x.append(bytearray(1 << 20))",
		"import json, email\nx = []\nwhile True: x.append(bytearray(1 << 18)); json.dumps(email.message_from_string('a: b').items())",
	} {
		var out bytes.Buffer
		began := time.Now()
		p, err := box.Start(ctx, sandbar.Cmd{Args: []string{"python3", "-c", script}}, driver.Stdio{Stderr: &out})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Wait()
		if err != nil || r.Outcome != sandbar.OutOfMemory {
			t.Errorf("%+v, %v: %s", r, err, out.String())
		}
		if took := time.Since(began); took > time.Minute { // without the agent's help: many minutes
			t.Errorf("it ended after %v", took)
		}
	}
	if err := other.Signal(15); err != nil {
		t.Error(err)
	}
	if r, err := other.Wait(); err != nil || r.Signal != 15 {
		t.Errorf("another program of the machine: %+v, %v", r, err)
	}
}
