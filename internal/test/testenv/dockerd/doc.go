// Package dockerd runs a Docker Engine of its own, for tests of what drives
// one. Everything the engine keeps is below one temporary directory: nothing of
// an engine that the host may have is seen or touched, no firewall rule and no
// bridge is made, and after Stop nothing is left.
//
// An engine can be made to crash and be started again, which is what tests of a
// driver are about: a crash leaves the containers and their shims running, as
// on a real host.
//
// It talks to the engine with net/http alone, so that it shares no fault with a
// client that is being tested. A test that uses it says
// testenv.Need(t, testenv.Docker) first.
package dockerd

// Prefix begins the names of the directories that engines are in, and of what is
// called after them: mount points, control groups, arguments of processes.
const Prefix = "sbdk-"
