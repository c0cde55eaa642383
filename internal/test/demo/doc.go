// Demo shows Sandbar at work: "make demo". It starts a server of its own on a
// free port of the loopback with a fresh token, talks to it as any client would
// — the Fathom protocol over WebSocket, written here in a page — and prints
// what programs of several languages did: their output as it streams in, how
// they ended and what they used. Then come programs that mean harm. At the end it
// stops the server and looks for what is left.
//
// It needs no interpreter but sh; a language that the host lacks is said to be
// missing. The exit code is 0 only if every program ended as expected and
// nothing was left.
package main
