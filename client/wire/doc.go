// Package wire is what the daemon's own API and its clients say to each other:
// the JSON bodies, and the frames of a command that is run over an upgraded
// connection.
//
// It promises that what one side writes the other reads back, that no frame is
// larger than MaxFrame, and that reading a frame of a peer that lies costs no
// more memory than that.
package wire
