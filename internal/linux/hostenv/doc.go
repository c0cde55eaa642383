// Package hostenv is what sandboxes that are made of Linux namespaces are given,
// whoever makes them: of the host its programs and settings, an environment, an
// identity, and limits as the kernel takes them. What of it a sandbox may see is
// not decided here but in package policy.
package hostenv
