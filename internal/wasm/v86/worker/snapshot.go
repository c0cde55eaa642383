package worker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sandbar-dev/sandbar/internal/wasm/v86/machine"
)

// A snapshot file is a header of headerSize bytes followed by the emulator's state. The header
// consists of the magic, the length of the description (4 bytes, little endian), the description in
// JSON, and NULs. headerSize is a multiple of the page size, so that the state can be mapped
// (mmap(2)).
const (
	headerSize    = 4096
	snapshotMagic = "sandbar v86 snapshot 1\n"
)

// description is the JSON in a snapshot's header.
type description struct {
	Memory  int64 // the guest's, in bytes
	Size    int64 // size of the state, in bytes
	Machine json.RawMessage
}

var errSnapshot = errors.New("the snapshot is damaged; remove it to boot the image again")

// writeSnapshot writes a snapshot of a machine.
func writeSnapshot(w io.Writer, s *machine.Snapshot, memory int64) error {
	m, err := s.Encode()
	if err != nil {
		return err
	}
	d, err := json.Marshal(description{Memory: memory, Size: int64(len(s.State)), Machine: m})
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint32([]byte(snapshotMagic), uint32(len(d)))
	head = append(head, d...)
	if len(head) > headerSize {
		return fmt.Errorf("the description of the snapshot has %d bytes", len(d))
	}
	head = append(head, make([]byte, headerSize-len(head))...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err = w.Write(s.State)
	return err
}

// openSnapshot opens a snapshot file. On Unix the state is a mapping of the file, and discard
// returns its pages to the system; they are read again when needed.
func openSnapshot(path string) (s *machine.Snapshot, memory int64, discard func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, nil, err
	}
	defer f.Close()
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, 0, nil, errSnapshot
	}
	rest, ok := bytes.CutPrefix(head, []byte(snapshotMagic))
	if !ok || int64(binary.LittleEndian.Uint32(rest)) > int64(len(rest)-4) {
		return nil, 0, nil, errSnapshot
	}
	var d description
	if json.Unmarshal(rest[4:4+binary.LittleEndian.Uint32(rest)], &d) != nil {
		return nil, 0, nil, errSnapshot
	}
	s = &machine.Snapshot{}
	info, err := f.Stat()
	if err != nil || info.Size() != headerSize+d.Size || d.Size <= 0 || s.Decode(d.Machine) != nil {
		return nil, 0, nil, errSnapshot
	}
	s.State, discard, err = load(f, d.Size)
	return s, d.Memory, discard, err
}
