// Package dockerd runs a private Docker Engine for tests. All its state is below one
// temporary directory. It does not use or change an engine of the host, creates no
// firewall rule and no bridge, and leaves nothing after Stop.
//
// Tests can crash and restart the engine: a crash leaves the containers and their shims
// running, as on a real host.
//
// The package uses the engine's API with net/http only, so that it shares no bug with a
// tested client. A test calls testenv.Need(t, testenv.Docker) first.
package dockerd

// Prefix is the prefix of an engine's directory, and so of its mount points, its cgroups,
// and paths in the arguments of its processes.
const Prefix = "sbdk-"
