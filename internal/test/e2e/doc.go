// Package e2e tests the built command end to end: real daemons, interpreters and clients,
// and faults such as SIGKILL. It has tests only.
package e2e
