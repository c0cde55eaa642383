// Command hostile is the first program of a machine that attacks the host: it boots and answers
// like the agent until the Setup of a sandbox, whose variable HOSTILE names what it then does.
// Tests of the driver vm start it in place of the agent.
package main

// The attacks, for the tests.
//
//	silent   never answers again
//	garbage  sends random bytes without end
//	frames   sends well-formed frames that nobody asked for, without end
//	huge     announces the largest possible frame and sends none of it
//	stutter  sends one byte of a frame each 100 ms
//	lies     answers requests with the results of others
//	packets  sends malformed IP packets without end
//	deaf     reads nothing and sends nothing
//	halt     powers the machine off
//	panic    makes its kernel panic
//	devices  writes random values to the registers of all devices
