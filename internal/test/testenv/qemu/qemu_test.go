package qemu

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
	"github.com/sandbar-dev/sandbar/internal/test/testenv/qemu/guestplan"
)

func TestRun(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.QEMU)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sh := func(script string) guestplan.Command {
		return guestplan.Command{Args: []string{"/bin/sh", "-c", script}}
	}
	delegated := sh("id -u; cat /proc/self/cgroup; mkdir /sys/fs/cgroup/a.slice/b.service/c && echo made; mkdir /sys/fs/cgroup/x 2>/dev/null || echo refused")
	delegated.UID, delegated.GID, delegated.Cgroup, delegated.Delegate = 1000, 1000, "/a.slice/b.service", true
	endless := sh("sleep 1000")
	endless.Timeout = 200 * time.Millisecond
	results, err := Run(ctx, Guest{
		Shares: map[string]string{"/test": t.TempDir()},
		Commands: []guestplan.Command{
			sh("cat /sys/fs/cgroup/cgroup.controllers; echo err >&2; exit 7"),
			sh("kill -9 $$"),
			delegated,
			endless,
			{Args: []string{"/no/such/program"}},
			sh("touch /test/x || touch /usr/x || echo read only"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		end  guestplan.End
		text []string
	}{
		{guestplan.End{ExitCode: 7}, []string{"memory", "pids", "cpu", "err"}},
		{guestplan.End{ExitCode: -1, Signal: 9}, nil},
		{guestplan.End{}, []string{"1000\n", "0::/a.slice/b.service\n", "made", "refused"}},
		{guestplan.End{ExitCode: -1, Signal: 9, TimedOut: true}, nil},
		{guestplan.End{ExitCode: -1, Err: "fork/exec /no/such/program: no such file or directory"}, nil},
		{guestplan.End{}, []string{"read only"}},
	} {
		got := results[i]
		if got.End != want.end {
			t.Errorf("command %d: ended %+v, want %+v", i, got.End, want.end)
		}
		for _, text := range want.text {
			if !strings.Contains(got.Output, text) {
				t.Errorf("command %d: wrote %q, which lacks %q", i, got.Output, text)
			}
		}
	}
}
