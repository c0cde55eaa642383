// Package docker makes each sandbox a container of a Docker Engine, spoken to
// over its API: on this machine or another, by a unix socket or by TCP with TLS,
// named by an option, DOCKER_HOST or a docker context.
//
// Package agent is the container's first program and does what it does in every
// sandbox: it starts programs, touches files, dials ports. There is no docker
// exec and no reading of logs. The agent's connection is the attach stream of
// the container, its standard input and output, for every engine alike: a
// request over it and back takes some 0.13 ms on one machine, nothing of the
// host is shown to the container for it, and it ends with this process. Then
// the agent ends, with it the container, and the engine removes that.
//
// The agent's program is in a volume that each daemon fills once, by way of an
// archive, and that containers see read-only; so it does not matter where the
// engine is.
//
// What stands between a program and the host is what a container has, with
// everything switched on: no network; no capability in any set; no new
// privileges; an ordinary user, who is neither root nor anybody; a read-only
// root with a bounded file system in memory in the three places that programs
// write to; /proc masked as in native and /sys hidden; the system-call filter of
// package policy twice, as the engine's profile and exactly, by the agent; and
// Landlock. Memory with swap, processors, weight and processes are held by the
// container's control group, which the engine makes and the kernel counts in.
//
// How a container is made is computed first, as data (plan.go). Every call to
// the engine has a bound (engine.go), and an engine that is absent, slow, or
// lacks an image is a typed error with the next step. A creation that fails
// midway or is given up leaves no container: what could not be taken back at
// once is looked for until it is gone (sweep.go), by the labels that everything
// carries, and so does Collect after a daemon was killed.
package docker
