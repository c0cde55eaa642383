package channel

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// FuzzFrames tests that a frame arrives unchanged however it is fragmented, that an incomplete one
// does not arrive, and that the queue stays within its bound.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, uint8(0), uint16(1))
	f.Add([]byte("text"), uint8(1), uint16(3))
	f.Add(bytes.Repeat([]byte("x"), 700), uint8(2), uint16(16))
	f.Fuzz(func(t *testing.T, frame []byte, cut uint8, most uint16) {
		var r io.Reader = bytes.NewReader(frame)
		switch cut % 4 {
		case 1:
			r = iotest.OneByteReader(r)
		case 2:
			r = iotest.HalfReader(r)
		case 3:
			r = iotest.DataErrReader(r)
		}
		got, err := readMessage(r)
		if err != nil || !bytes.Equal(got, frame) {
			t.Fatalf("%d bytes became %d (%v)", len(frame), len(got), err)
		}
		broken := errors.New("broken off")
		if b, err := readMessage(io.MultiReader(bytes.NewReader(frame), iotest.ErrReader(broken))); err != broken || b != nil {
			t.Fatalf("a frame that breaks off: %d bytes, %v", len(b), err)
		}
		q := newQueue(int(most%64) + 1)
		var put, taken int
		for range 80 {
			if done, err := q.tryPut(message{data: got}); err != nil {
				t.Fatal(err)
			} else if done {
				put++
			}
		}
		if put > q.most || put > 1 && put*len(frame) > maxQueued {
			t.Fatalf("%d frames of %d bytes wait, where %d may", put, len(frame), q.most)
		}
		for {
			m, done, _ := q.tryTake()
			if !done {
				break
			}
			if !bytes.Equal(m.data, frame) {
				t.Fatal("the queue changed a frame")
			}
			taken++
		}
		if taken != put {
			t.Fatalf("%d frames went in and %d came out", put, taken)
		}
	})
}
