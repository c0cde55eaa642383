// Package sandboxes is the common part of the drivers that make sandboxes of this host's namespaces
// and control groups and run the agent in them: native and oci.
//
// It promises that both drivers describe and refuse the same limits in the same words, and that both
// give back what a sandbox holds in the same order: processes first, then the control group, then ids
// and image.
package sandboxes
