package agent

import (
	"slices"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func TestProgramEnv(t *testing.T) {
	s := &wire.Setup{Env: []string{"HOME=/home/user"}}
	own := []string{"PATH=/opt/bin", "HOME=/root", "GOGC=25", "KUBERNETES_PORT=1", "LANG=de", "A=b=c"}
	if got := programEnv(s, own); !slices.Equal(got, s.Env) {
		t.Errorf("without the agent's variables: %q", got)
	}
	s.OwnEnv = wire.OwnEnv{Use: true, Below: []string{"PATH=/bin", "TZ=UTC"}, Omit: []string{"GOGC", "KUBERNETES_*", "LAN"}}
	if got, want := programEnv(s, own), []string{"PATH=/opt/bin", "TZ=UTC", "HOME=/home/user", "LANG=de", "A=b=c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
