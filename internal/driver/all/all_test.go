package all_test

import (
	"runtime"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/driver/all"
)

func TestFactories(t *testing.T) {
	want := []string{"wasm", "v86", "docker", "e2b", "kubernetes", "local"}
	if runtime.GOOS == "linux" {
		want = []string{"native", "wasm", "v86", "docker", "e2b", "kubernetes", "oci", "gvisor", "vm", "local"}
	}
	got := all.Factories(nil, nil)
	if len(got) != len(want) {
		t.Fatalf("%d drivers, want %v", len(got), want)
	}
	for i, f := range got {
		if f.Name != want[i] || f.Summary == "" || f.New == nil {
			t.Errorf("driver %d is %q (%q), want %q", i, f.Name, f.Summary, want[i])
		}
		for name, help := range f.Options {
			if help == "" {
				t.Errorf("option %s of %s has no help", name, f.Name)
			}
		}
	}
}
