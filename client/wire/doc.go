// Package wire defines the messages between the daemon's own API and its clients: the JSON bodies,
// and the frames of a command on an upgraded connection.
//
// Invariants: each side decodes exactly what the other encodes. No frame is larger than MaxFrame,
// and decoding a malicious frame uses no more memory than that.
package wire
