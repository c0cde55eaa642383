// Package escape is the catalogue of attacks that a sandbox must survive, as
// data and a way to run them. The conformance suite (package drivertest) runs
// it against every driver; it does not need package testing, so that a command
// can print the same table for a host.
//
// A claim is tested both ways. Each [Case] belongs to one claim a driver can
// make in its Caps. Where the driver claims it, the attack must be contained.
// Where it does not, a case with Leaks is run all the same and must be seen to
// succeed, or the case would prove nothing; other cases are not run there.
//
// "Contained" means: the program got at nothing it should not have, and after
// the sandbox's end the host is as before: the bait (a file, a directory, a
// process, listeners, made for the one case) is untouched, and no process of
// the sandbox is left.
//
// The cases are safe on a host in production, also when containment fails:
// what they would change is bait; calls that could harm a host are only
// attempted behind a claimed boundary and with arguments that change nothing;
// everything is bounded in time and amount.
//
// The numbers are those of the project's catalogue of adversarial cases: 1–18
// files, 19–30 processes, 31–42 resources, 43–55 network, 56–66 kernel. Output
// and time limits are not a driver's but the engine's, and so are their cases
// 37 to 40: the engine's own tests hold them, and those of each protocol for
// what is refused. What KillTree must survive is in package drivertest.
package escape
