// Package embedded carries the agent's executable inside the sandbar binary.
//
// "make build" builds cmd/sandbar-agent first, puts it beside this file and builds sandbar with the
// tag embedagent. The agent is a separate executable because it is part of every sandbox's memory
// and start: it is a tenth of sandbar's size. A plain "go build" embeds nothing, and sandbar starts
// itself as the agent instead; see package agent.
package embedded
