//go:build unix && !linux

package image

// receiveFlags is 0: an unpacker starts no program.
const receiveFlags = 0
