// Package channel is the byte streams of the iii protocol: a writer at one
// end, a reader at the other, and between them a bounded queue.
//
// A channel is named by a [Ref], which a caller passes around in payloads.
// Whoever holds a Ref opens an end over a WebSocket at /ws/channels/{id}, or,
// in the same process, directly: a [Hub] is both the server of those sockets
// and the source of direct ends. A [Remote] is the same for a process that is
// not the server: it dials.
//
// On the wire a binary frame is bytes of the stream and a text frame a side
// message; both keep their order. How bytes are cut into frames means nothing.
//
// What it promises:
//
//   - Only a Close frame ends a stream. A writer whose connection breaks leaves
//     a stream that ends in [ErrAborted], so that half an upload is never taken
//     for a whole one.
//   - A queue is bounded in messages and in bytes. When it is full the writer's
//     socket is not read from, and the writer waits; no byte is dropped.
//   - Each end can be taken once.
//   - Nothing outlives its use: a channel is gone when both ends are done, when
//     its reader has left, and when an end has not been opened in time.
package channel

import (
	"context"
	"errors"
	"io"
)

// Direction says which end of a channel the holder of a Ref may open.
type Direction string

// The directions.
const (
	Read  Direction = "read"
	Write Direction = "write"
)

// Ref names one end of a channel. Its key is a secret: whoever knows it can
// open the end.
type Ref struct {
	AccessKey string    `json:"access_key"`
	ChannelID string    `json:"channel_id"`
	Direction Direction `json:"direction"`
}

// Why a stream ended early or could not be opened.
var (
	// ErrAborted: the writer's connection broke before its Close frame, or the
	// channel was given up.
	ErrAborted = errors.New("the stream was cut off before its end")
	// ErrReaderGone: nobody will read what is written.
	ErrReaderGone = errors.New("the reader has left")
	// ErrUnknown: there is no channel of this id and key; it may have expired.
	ErrUnknown = errors.New("there is no such channel")
	// ErrTaken: this end has been opened before.
	ErrTaken = errors.New("this end of the channel has been opened before")
	// ErrTooMany: as many channels are open as may be.
	ErrTooMany = errors.New("as many channels are open as may be")
	// ErrClosed: the Hub has been closed.
	ErrClosed = errors.New("the server is shutting down")
)

// A Reader is the reading end of a channel. It is used by one goroutine.
type Reader interface {
	// Next returns the next bytes of the stream, valid until the next call.
	// The error is io.EOF after the last, ErrAborted where the stream was cut
	// off, and ctx's when that ends first. Side messages are passed over.
	Next(ctx context.Context) ([]byte, error)
	// Close gives the end up. It may be called more than once.
	Close() error
}

// Ends opens ends of channels. A Hub and a Remote do.
type Ends interface {
	// Reader opens the reading end that ref names.
	Reader(ctx context.Context, ref Ref) (Reader, error)
	// Offer makes a channel through which src is sent to whoever opens the
	// returned reading end. src is read from only then, where that can be
	// known. It is closed in the end, also when Offer fails. held is how many
	// bytes of memory src holds, for the bound on all of them.
	Offer(ctx context.Context, src io.ReadCloser, held int64) (Ref, error)
}

// Bounds of channels.
const (
	// DefaultBuffer, MinBuffer and MaxBuffer are messages in a queue.
	DefaultBuffer, MinBuffer, MaxBuffer = 64, 1, 1024
	// maxQueued is in bytes. A single message may be larger than it.
	maxQueued = 4 << 20
	// maxMessage is the largest frame that is read, in bytes.
	maxMessage = 16 << 20
	// piece is how much of a source goes into one frame, in bytes.
	piece = 64 << 10
)
