package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sandbar-dev/sandbar/internal/agent/embedded"
	"github.com/sandbar-dev/sandbar/internal/cli"
)

// version is set by the linker (make build).
var version string

// build describes this binary. The JSON names are stable.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Agent    string `json:"agent"` // "embedded", or "self": the binary starts itself as the agent
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Agent: "self"}
	if embedded.Binary() != nil {
		b.Agent = "embedded"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version // "go install …@version"
	}
	if b.Version == "" {
		b.Version = "unknown"
	}
	return b
}

// String returns the line of "sandbar version" and --version.
func (b build) String() string {
	return fmt.Sprintf("%s (%s, %s/%s, agent %s)", b.Version, b.Go, b.OS, b.Arch, b.Agent)
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Example: "  sandbar version\n  sandbar version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return cli.WriteReport(a.stdout, b)
			}
			_, err := fmt.Fprintf(a.stdout, "sandbar %s\n", b)
			return err
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}
