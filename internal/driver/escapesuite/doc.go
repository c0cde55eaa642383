// Package escapesuite runs the escape suite on an operator's host: the attacks of package escape on
// a driver, and attacks on the daemon. For each case it reports the attack, the expected result and
// the observed one.
//
// The attacks on a driver run in this process. Those on the daemon run against a daemon that is a
// child process of this program, with its own directories, token and loopback addresses: malformed,
// oversized, forged, slow and aborted input on its listeners (cases 37–40 and 52–80), its sudden
// end (81–88), and data that programs send through it (92 and 95).
//
// Invariants:
//
//   - The suite is safe on a production host. It changes only files that it created, signals only
//     its own processes, and its time, memory, connections and processes are bounded.
//   - A verdict is an observation. A case that cannot be attempted is NOT RUN, with the reason. A
//     case that was not completed is INCONCLUSIVE, which is a failure.
//   - If a driver claims no boundary, its attacks run too and must succeed. For the daemon all
//     boundaries are claimed.
package escapesuite
