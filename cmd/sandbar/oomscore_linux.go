package main

import (
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/server/platform"
)

// daemonOOMScore is the daemon's oom_score_adj: under memory pressure the kernel kills
// processes with a higher score first (proc_pid_oom_score_adj(5)). It is not -1000, which
// excludes a process, so that the kernel can kill a daemon that leaks memory.
const daemonOOMScore = -900

// lowerOOMScore lowers the daemon's oom_score_adj to daemonOOMScore. It does nothing for
// an ordinary user, who lacks the right; if the score is already as low; and if a driver
// has no boundary, because its programs would inherit the score. Processes of the other
// drivers set their own score.
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
		log.Info("cannot lower oom_score_adj: under memory pressure the kernel may kill the daemon before its sandboxes", "error", err)
	}
}
