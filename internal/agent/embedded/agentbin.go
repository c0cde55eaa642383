// Package embedded is the agent's program as it is carried inside the sandbar
// binary.
//
// "make build" builds cmd/sandbar-agent first, puts it beside this file and
// builds sandbar with the tag embedagent. The agent is a program of its own
// because it is in every sandbox's memory and starts with every sandbox: it is
// a tenth of sandbar's size. A plain "go build" carries nothing, and sandbar
// starts itself as the agent instead: see package agent.
package embedded
