// Package escapesuite is the escape suite as an operator runs it: the attacks of
// package escape on a driver, and those on the daemon around it, on the host at
// hand. It says, case by case, what was attempted, what was expected and what
// happened.
//
// The attacks on a driver are run in this process. Those on the daemon are run
// against a real one, a child process of this program with directories, a token
// and addresses on loopback of its own: what is malformed, oversized, forged,
// slow or vanishing on its listeners (37–40 and 52–80), its own sudden end
// (81–88), and what programs send out through it (92 and 95).
//
// What it promises:
//
//   - It is safe on a host in production: it changes nothing but what it has made
//     itself, ends no process but its own, and is bounded in time, memory,
//     connections and processes.
//   - A verdict is what was seen. What could not be attempted is NOT RUN, with
//     the reason; what did not get to its end is INCONCLUSIVE, and a failure.
//   - Where a driver claims no boundary, its attacks are run all the same and
//     must be seen to succeed. Of the daemon everything is claimed.
package escapesuite
