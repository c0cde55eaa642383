// Package docker makes each sandbox a container of a Docker Engine. It uses the engine's API, on
// this machine or another, over a UNIX socket or TCP with TLS. An option, DOCKER_HOST or a docker
// context names the engine.
//
// Package agent is the container's first program and has the same tasks as in every sandbox: it
// starts programs, accesses files and dials ports. The driver uses neither docker exec nor logs.
// The agent's connection is the container's attach stream, its standard input and output, on every
// engine: a round trip takes about 0.13 ms on one machine, no part of the host is mounted for it,
// and it ends with this process. Then the agent exits, the container stops, and the engine removes
// it.
//
// The agent's executable is in a volume, which each daemon fills once with an archive, and which
// containers mount read-only. So the engine can be on any machine.
//
// The boundary is that of a container with all its mechanisms: no network; no capability in any
// set; no_new_privs; an unprivileged user; a read-only root, with a bounded tmpfs at the three
// places that programs write to; /proc masked as in native, and /sys hidden; the seccomp filter of
// package policy twice, as the engine's profile and exactly, by the agent; and Landlock. The
// container's cgroup, created by the engine, enforces memory with swap, CPUs, weight and processes.
//
// The container's parameters are first computed as data (plan.go). Every call to the engine has a
// timeout (engine.go). If the engine is absent, slow, or lacks an image, the result is a typed
// error with a fix. A failed or cancelled creation leaves no container: the driver searches for
// what it could not remove at once until it is gone (sweep.go), by the labels of all its objects;
// so does Collect after a daemon was killed.
package docker
