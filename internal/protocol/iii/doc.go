// Package iii serves the protocol of the iii engine and its iii-sandbox worker (docs/protocols.md,
// iii), for unmodified clients.
//
// There are two ways to use it. [New] returns a [Server], the engine's side: SDKs connect to it as
// to an iii engine, and find the sixteen sandbox functions there. [NewWorker] returns a [Worker],
// which joins an iii engine elsewhere and offers it the same functions. Both are built from the
// packages below this one:
//
//   - bus: functions and invocations over a WebSocket, both sides of it
//   - channel: the byte streams of files
//   - function: the functions themselves
//   - settings: the operator's settings
//   - shell, search: pure parts of single functions
//
// The listener checks tokens, Host and Origin, except for what Options.Authorize checks.
package iii
