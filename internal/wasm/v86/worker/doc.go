// Package worker is the confined process that emulates a PC for the v86 driver (package machine).
// The guest's agent is connected to its second serial port.
//
// ModeBoot boots an image, starts an agent in it, and writes a snapshot of the machine to standard
// output. ModeRun loads such a snapshot and speaks the agent's protocol (package wire) over
// standard input and output, like an agent.
//
// # Invariants
//
//   - The guest reaches no file and no network of the host. The worker opens all files that it
//     reads before the guest's first instruction.
//   - The machine runs only while a request is unanswered, a program runs, its output is open, or a
//     connection is open. Otherwise it stands still, and its clock is set when it continues.
//   - Setup resets the machine to the snapshot. Before the reply, the worker fails all pending
//     requests, closes all channels, and reports all programs as killed.
//   - The worker exits at the end of its input, and if the agent does not answer a request or does
//     not end a killed program within a time limit.
package worker
