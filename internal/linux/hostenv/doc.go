// Package hostenv computes what drivers that use Linux namespaces give to sandboxes: the host's
// programs and settings, an environment, an identity and resource limits. Package policy decides
// which parts of the host a sandbox may see.
package hostenv
