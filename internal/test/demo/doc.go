// Demo demonstrates Sandbar: "make demo". It starts a server on a free loopback port with a
// new token, and is a client of it: a small implementation of the Fathom protocol over
// WebSocket. It runs programs in several languages and prints their streamed output, how
// they ended, and what they used. Then it runs malicious programs. At the end it stops the
// server and searches for leftovers.
//
// It needs no interpreter but sh and reports languages that the host lacks. The exit code
// is 0 only if every program ended as expected and nothing was left behind.
package main
