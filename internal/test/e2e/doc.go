// Package e2e tests the built command as its users meet it: a real daemon,
// real languages, real clients, and a real SIGKILL. It holds tests only.
package e2e
