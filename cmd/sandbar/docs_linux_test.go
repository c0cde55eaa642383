package main

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/driver/all"
	"github.com/sandbar-dev/sandbar/internal/server/config"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

// docs/configuration.md says what the table of settings says. It is made on
// Linux, where all drivers are.
func TestConfigurationDocument(t *testing.T) {
	const path = "../../docs/configuration.md"
	want := config.Markdown(platform.Settings(all.Factories(nil, nil)))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; run \"go test ./cmd/sandbar -run TestConfigurationDocument -update\"\n%s", path, diff)
	}
}
