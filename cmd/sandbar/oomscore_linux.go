package main

import (
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// daemonScore is the daemon's in oom_score_adj: when the host is short of
// memory, all but what is as important is killed first. Not -1000, which is
// never: a daemon that leaked would take the host with it.
const daemonOOMScore = -900

// protect lowers the daemon's score, where it may. It does nothing for an ordinary
// user, who may not; where the operator has set one that is as low; and where a
// driver runs programs without a boundary: they would inherit it, and could
// take the host's memory without being killed. The processes of the other
// drivers set a score of their own.
func lowerOOMScore(ds platform.Drivers, log *slog.Logger) {
	const file = "/proc/self/oom_score_adj"
	for _, d := range ds.All() {
		if d.Caps().Boundary == driver.BoundaryNone {
			return
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || os.Geteuid() != 0 {
		return
	}
	if score, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || score <= daemonOOMScore {
		return
	}
	if err := os.WriteFile(file, strconv.AppendInt(nil, daemonOOMScore, 10), 0); err != nil {
		log.Info("the daemon is not put before its sandboxes when memory is short", "error", err)
	}
}
