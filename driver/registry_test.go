package driver

import (
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func TestRegistry(t *testing.T) {
	var r Registry
	if err := r.Claim("a"); err != nil {
		t.Fatal(err)
	}
	if err := r.Claim("a"); sandbar.CodeOf(err) != sandbar.Exists {
		t.Errorf("an id that is taken: %v", err)
	}
	if ids := r.IDs(); len(ids) != 1 || ids[0] != "a" {
		t.Errorf("taken are %v", ids)
	}
	if !r.Has("a") || r.Has("b") {
		t.Errorf("a: %v, b: %v", r.Has("a"), r.Has("b"))
	}
	r.Release("a")
	r.Release("b")
	if err := r.Claim("a"); err != nil {
		t.Errorf("an id that was given back: %v", err)
	}
	if !r.Shut() || r.Shut() {
		t.Error("Shut was the first twice, or never")
	}
	if err := r.Claim("c"); sandbar.CodeOf(err) != sandbar.Unavailable || r.Has("c") {
		t.Errorf("when it is closed: %v", err)
	}
	r.Release("a")
	if r.Has("a") {
		t.Error("a closed registry keeps an id after Release")
	}
}
