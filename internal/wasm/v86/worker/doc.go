// Package worker is the process in which a PC of the mode v86 runs: an emulator
// (package machine), confined, with the agent in its guest at the other end of
// a serial line.
//
// It has two modes. In ModeBoot it boots an image, gets an agent to run in it,
// and writes the machine as it is then to its standard output. In ModeRun it
// takes such a snapshot and speaks the agent's protocol (package wire) over its
// standard input and output, so to the host it is an agent like any other.
//
// What it promises:
//
//   - No file and no network of the host is reached by the guest. What the
//     worker reads it has opened before the guest's first instruction.
//   - The machine runs only while something is under way: a request that has no
//     answer yet, a program, its output, a connection. Else it stands still, and
//     its clock is set when it goes on.
//   - A Setup takes the machine back to the snapshot; whatever was under way is
//     told to have ended.
//   - It ends with its input. It ends too when the agent does not do within a
//     time what it must: answer, or end a program that was killed.
package worker
