// Package iii serves the protocol of the iii engine and its iii-sandbox worker
// (docs/protocols.md, iii), for unmodified clients.
//
// There are two ways to use it. [New] makes a [Server], which is the engine's
// side: SDKs connect to it as they would to an iii engine, and find the sixteen
// sandbox functions there. [NewWorker] makes a [Worker], which joins an iii engine
// somewhere else and offers it the same functions. Both are made of the parts
// below this package:
//
//   - bus: functions and invocations over a WebSocket, both sides of it
//   - channel: the byte streams of files
//   - function: the functions themselves
//   - settings: what an operator can set
//   - shell, search: pure parts of single functions
//
// Each says what it promises. Tokens, Host and Origin are the listener's
// business, except for what Options.Authorize checks.
package iii
