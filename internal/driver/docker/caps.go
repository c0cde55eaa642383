package docker

import (
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// describe computes Caps from an engine's description of itself. swaps says that this machine has
// swap, if the engine runs on it.
func describe(info system.Info, at endpoint, o options, local, swaps bool) driver.Caps {
	held := sandbar.EnforcedCgroup1
	if info.CgroupVersion == "2" {
		held = sandbar.EnforcedCgroup2
	}
	c := driver.Caps{
		Name: Name, Boundary: driver.BoundaryContainer,
		Enforced: sandbar.Enforcements{
			Memory: held, CPUs: held, CPUShares: held, PIDs: held,
			Disk: sandbar.EnforcedMount, Inodes: sandbar.EnforcedMount, Files: sandbar.EnforcedRlimit,
		},
		OOMCounted:   local,
		PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true,
		Outbound: o.network != "", Terminals: true,
		Notes: []string{"Docker Engine " + plain(info.ServerVersion) + " at " + at.host + " (" + at.from + "), runtime " + plain(info.DefaultRuntime)},
	}
	note := func(text string) { c.Notes = append(c.Notes, text) }
	lack := func(limit *sandbar.Enforcement, what string) {
		*limit = sandbar.EnforcedNone
		note("the engine cannot limit " + what + " on its host: see the warnings of docker info")
	}
	for _, x := range []struct {
		has   bool
		limit *sandbar.Enforcement
		what  string
	}{
		{info.MemoryLimit, &c.Enforced.Memory, "memory"},
		{info.CPUCfsQuota && info.CPUCfsPeriod, &c.Enforced.CPUs, "processors"},
		{info.CPUShares, &c.Enforced.CPUShares, "weights"},
		{info.PidsLimit, &c.Enforced.PIDs, "processes"},
	} {
		if !x.has {
			lack(x.limit, x.what)
		}
	}
	if info.MemoryLimit && !info.SwapLimit && (!local || swaps) {
		c.Enforced.Memory = sandbar.EnforcedNone
		note("the engine's host does not account swap, so swapped-out memory would not count towards the memory limit: boot it with swapaccount=1, or disable its swap")
	}
	c.OOMCounted = c.OOMCounted && c.Enforced.Memory != sandbar.EnforcedNone
	noteBoundary(info, note)
	if at.unencrypted {
		note("the connection to the engine is neither encrypted nor authenticated: any client that can connect to it has root access to its host (use tcp with certificates, or a socket)")
	}
	if o.network != "" {
		note("sandboxes with a network use the docker network " + o.network + "; the daemon's rules for outbound connections do not apply there")
	}
	return c
}

// noteBoundary describes what a container's boundary consists of on this engine.
func noteBoundary(info system.Info, note func(string)) {
	has := func(name string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
			return slices.Contains(strings.Split(o, ","), "name="+name)
		})
	}
	var on []string
	for _, name := range []string{"seccomp", "apparmor", "selinux", "userns", "rootless"} {
		if has(name) {
			on = append(on, name)
		}
	}
	note("besides namespaces and capabilities the engine enforces: " + strings.Join(on, ", "))
	if !has("seccomp") {
		note("the engine does not support seccomp: only the agent filters system calls")
	}
	if !has("userns") && !has("rootless") {
		note("the engine maps no users: programs have the uid 1000 on its host too; use dockerd's userns-remap or a rootless engine")
	}
}

// refuse returns an error if the engine cannot do or enforce what s requests.
func (d *Driver) refuse(s sandbar.Spec) error {
	if err := d.refuseNetwork(s.Network); err != nil {
		return err
	}
	if err := sandbar.CheckEnv(s.Env); err != nil {
		return err
	}
	if s.Limits.Memory > 0 && s.Limits.Memory < minMemory {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.memory", Message: "the memory limit of a container is at least 6 MiB", Fix: "request more"}
	}
	if s.Limits.CPUs > 0 && s.Limits.CPUs < minCPUs {
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "limits.cpus", Message: "the limit of processors of a container is at least 0.01", Fix: "request more"}
	}
	if s.AllowDegraded {
		return nil
	}
	e := d.caps.Enforced
	for _, l := range []struct {
		field string
		set   bool
		by    sandbar.Enforcement
	}{
		{"limits.memory", s.Limits.Memory > 0, e.Memory},
		{"limits.cpus", s.Limits.CPUs > 0, e.CPUs},
		{"limits.cpu_shares", s.Limits.CPUShares > 0, e.CPUShares},
		{"limits.pids", s.Limits.PIDs > 0, e.PIDs},
	} {
		if l.set && l.by == sandbar.EnforcedNone {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: l.field, Message: "the Docker Engine cannot enforce " + l.field + " on its host",
				Fix: "run `sandbar doctor` for what is missing, or allow degraded limits"}
		}
	}
	return nil
}

func (d *Driver) refuseNetwork(n sandbar.Network) error {
	switch {
	case n == "" || n == sandbar.NetworkNone:
		return nil
	case n != sandbar.NetworkOutbound:
		return &sandbar.Error{Code: sandbar.Invalid, Field: "network",
			Message: "network " + sandbar.Quote(string(n), 40) + " is unknown; the networks are \"none\" and \"outbound\""}
	case d.opt.network == "":
		return &sandbar.Error{Code: sandbar.Unsupported, Field: "network",
			Message: "the operator has configured no docker network for the network \"outbound\"",
			Fix:     "set the option " + optionNetwork + " of the driver docker, for example to \"bridge\""}
	}
	return nil
}
