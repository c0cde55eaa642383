package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func rl(resource uint32, soft, hard uint64) wire.Rlimit {
	return wire.Rlimit{Resource: resource, Soft: soft, Hard: hard}
}

func TestRlimits(t *testing.T) {
	const inf = RlimitInfinity
	base := func(files uint64) []wire.Rlimit {
		return []wire.Rlimit{rl(7, files, files), rl(4, 1, 1), rl(3, 8<<20, inf), rl(8, 8<<20, 8<<20), rl(12, 409600, 409600), rl(11, 4096, 4096), rl(13, 0, 0), rl(14, 0, 0)}
	}
	everything := sandbar.Enforcements{Memory: sandbar.EnforcedWatchdog, PIDs: sandbar.EnforcedRlimit}
	for _, tt := range []struct {
		name   string
		limits sandbar.Limits
		o      RlimitOptions
		want   []wire.Rlimit
		code   sandbar.Code
	}{
		{name: "cgroups hold the rest", limits: sandbar.Limits{Files: 256, PIDs: 10, Memory: 1 << 20},
			o:    RlimitOptions{Enforced: sandbar.Enforcements{Memory: sandbar.EnforcedCgroup2, PIDs: sandbar.EnforcedCgroup1}, AgentThreads: 9},
			want: base(256)},
		{name: "no cgroups", limits: sandbar.Limits{Files: 256, PIDs: 10, Memory: 64 << 20}, o: RlimitOptions{Enforced: everything},
			want: append(base(256), rl(6, 10, 10), rl(2, 320<<20, 320<<20))},
		{name: "the agent is the same user", limits: sandbar.Limits{Files: 256, PIDs: 10, Memory: 64 << 20}, o: RlimitOptions{Enforced: everything, AgentThreads: 12},
			want: append(base(256), rl(6, 22, 22), rl(2, 320<<20, 320<<20))},
		{name: "unlimited", limits: sandbar.Limits{Files: sandbar.Unlimited, PIDs: sandbar.Unlimited, Memory: sandbar.Unlimited}, o: RlimitOptions{Enforced: everything},
			want: base(1 << 20)},
		{name: "under the daemon's own", limits: sandbar.Limits{Files: 512, PIDs: 10},
			o: RlimitOptions{Ceiling: func(r uint32) uint64 {
				return map[uint32]uint64{7: 512, 4: 0, 3: 16 << 20, 8: 65536, 12: inf, 11: 100, 13: inf, 14: inf}[r]
			}},
			want: []wire.Rlimit{rl(7, 512, 512), rl(4, 0, 0), rl(3, 8<<20, 16<<20), rl(8, 65536, 65536), rl(12, 409600, 409600), rl(11, 100, 100), rl(13, 0, 0), rl(14, 0, 0)}},
		{name: "more files than the daemon may open", limits: sandbar.Limits{Files: 513}, o: RlimitOptions{Ceiling: func(uint32) uint64 { return 512 }}, code: sandbar.Unsupported},
		{name: "unlimited files under the daemon's own", limits: sandbar.Limits{Files: sandbar.Unlimited}, o: RlimitOptions{Ceiling: func(r uint32) uint64 {
			if r == 7 {
				return 4096
			}
			return inf
		}}, want: base(4096)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Rlimits(tt.limits, tt.o)
			if sandbar.CodeOf(err) != tt.code {
				t.Fatalf("error %v, want code %q", err, tt.code)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
