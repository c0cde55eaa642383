//go:build unix && !linux

package image

// receiveFlags is nothing here: an unpacker starts no program.
const receiveFlags = 0
