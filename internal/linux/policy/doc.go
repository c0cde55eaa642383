// Package policy is the policy of a native sandbox as data: the system calls that programs may
// make, the steps that build the root file system, the Landlock ruleset, and the limits of each
// process. Every row has its reason.
//
// Invariants:
//
//   - The package makes no system call. Every result is a pure function of its arguments, so a plan
//     can be printed, compared with a golden file and reviewed.
//   - Every system call of linux/amd64 and linux/arm64 has a row. A test fails if one has none, or
//     if a row has no effect.
//   - Every build has the tables of both architectures.
//
// The agent (internal/agent) applies the results. Their types are those of internal/agent/wire.
package policy
