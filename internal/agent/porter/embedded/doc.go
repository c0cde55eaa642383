// Package embedded carries the porter's executable inside the sandbar binary, for the image with
// the agent and the porter (package agentimage). "make build" builds cmd/sandbar-porter first, puts
// it beside this file and builds sandbar with the tag embedagent. A plain "go build" embeds
// nothing.
//
// It is not part of internal/agent/embedded, because programs that need only the agent would then
// have to wait until the porter is built.
package embedded
