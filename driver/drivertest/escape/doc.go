// Package escape is a catalogue of attacks that a sandbox must contain, as data, with a function
// that runs one. The conformance suite (package drivertest) runs it against every driver. It does
// not import package testing, so a command can run it on a host.
//
// Claims are tested in both directions. Each [Case] belongs to one claim of a driver's Caps. If the
// driver makes the claim, the attack must be contained. If not, a case with Leaks still runs and
// must succeed, because otherwise it would prove nothing; other cases do not run.
//
// "Contained" means that the program got no access that it should not have, and that after the
// sandbox's end the bait is unchanged and no process of the sandbox lives. The bait is a file, a
// directory, a process and listeners, made for each case.
//
// The cases are safe on a production host, even if containment fails. They only change the bait.
// Calls that could harm a host run only behind a claimed boundary and with arguments that change
// nothing. Time and amounts are bounded.
//
// The numbers are those of the project's catalogue of adversarial cases: 1–18 files, 19–30
// processes, 31–42 resources, 43–55 network, 56–66 kernel. Cases 37 to 40 are about output and time
// limits, which the engine enforces; the tests of the engine and of the protocols have them.
// Attacks on KillTree are in package drivertest.
package escape
