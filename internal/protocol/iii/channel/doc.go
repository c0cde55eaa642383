// Package channel implements the byte streams of the iii protocol: a writer at one end, a reader at
// the other, and a bounded queue between them.
//
// A channel is identified by a [Ref], which callers pass around in payloads. The holder of a Ref
// opens an end over a WebSocket at /ws/channels/{id} or, in the same process, directly: a [Hub] is
// both the server of those sockets and the source of direct ends. A [Remote] is the same for a
// process that is not the server: it dials.
//
// On the wire, a binary frame is bytes of the stream and a text frame is a side message; both keep
// their order. Frame boundaries have no meaning.
//
// Invariants:
//
//   - Only a Close frame ends a stream. If a writer's connection breaks, the stream ends with
//     [ErrAborted], so that a partial upload is never taken for a complete one.
//   - A queue is bounded in messages and in bytes. While it is full, the writer's socket is not
//     read, so the writer blocks; no byte is dropped.
//   - Each end can be opened once.
//   - A channel is removed when both ends are done, when its reader has left, or when an end was
//     not opened in time.
package channel

import (
	"context"
	"errors"
	"io"
)

// Direction is the end of a channel that the holder of a Ref may open.
type Direction string

// The directions.
const (
	Read  Direction = "read"
	Write Direction = "write"
)

// Ref identifies one end of a channel. Its key is a secret: every holder can open the end.
type Ref struct {
	AccessKey string    `json:"access_key"`
	ChannelID string    `json:"channel_id"`
	Direction Direction `json:"direction"`
}

// Errors of a stream.
var (
	// ErrAborted: the writer's connection broke before its Close frame, or the channel was dropped.
	ErrAborted = errors.New("the stream was cut off before its end")
	// ErrReaderGone: the reader has left.
	ErrReaderGone = errors.New("the reader has left")
	// ErrUnknown: no channel has this id and key; it may have expired.
	ErrUnknown = errors.New("there is no such channel")
	// ErrTaken: this end was already opened.
	ErrTaken = errors.New("this end of the channel has been opened before")
	// ErrTooMany: the bound of open channels is reached.
	ErrTooMany = errors.New("as many channels are open as may be")
	// ErrClosed: the Hub has been closed.
	ErrClosed = errors.New("the server is shutting down")
)

// A Reader is the reading end of a channel. Only one goroutine may use it.
type Reader interface {
	// Next returns the next bytes of the stream, valid until the next call. It returns io.EOF after
	// the last, ErrAborted if the stream was cut off, and ctx's error if ctx ends first. It skips
	// side messages.
	Next(ctx context.Context) ([]byte, error)
	// Close closes the end. It may be called more than once.
	Close() error
}

// Ends opens ends of channels. Hub and Remote implement it.
type Ends interface {
	// Reader opens the reading end of ref.
	Reader(ctx context.Context, ref Ref) (Reader, error)
	// Offer creates a channel that sends src to whoever opens the returned reading end. A Hub reads
	// from src only then. src is closed in any case, also if Offer fails. held is the memory of src
	// in bytes, for the bound of all offers.
	Offer(ctx context.Context, src io.ReadCloser, held int64) (Ref, error)
}

// Bounds of channels.
const (
	// DefaultBuffer, MinBuffer and MaxBuffer are numbers of messages in a queue.
	DefaultBuffer, MinBuffer, MaxBuffer = 64, 1, 1024
	// maxQueued bounds a queue in bytes. A single message may be larger.
	maxQueued = 4 << 20
	// maxMessage is the largest frame that is read, in bytes.
	maxMessage = 16 << 20
	// piece is the largest frame of a source, in bytes.
	piece = 64 << 10
)
