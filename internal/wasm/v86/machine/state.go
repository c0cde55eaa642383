package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dop251/goja"
)

// Snapshot is a machine that was saved, with what the emulator itself does not
// save: its time, without which no timer of the guest would ever come, and the
// serial ports.
type Snapshot struct {
	Clock            time.Duration
	Console, Channel portState
	// State is the emulator's own form. Not to be changed.
	State []byte `json:"-"`
}

// Foreign is the snapshot of a state in the emulator's own form, which another
// host of the emulator has saved. What is not in it is as it is in a machine
// that runs Linux with a console; and its clock is so late that none of the
// guest's timers is in the future.
func Foreign(state []byte) *Snapshot {
	const late = 365 * 24 * time.Hour
	console := portState{Enable: enableReceive | 0x04, FIFO: fifoEnable, Line: 0x13, Modem: modemOut2 | modemRTS | 1}
	return &Snapshot{Clock: late, Console: console, State: state}
}

// Save copies the machine, as it is between two steps.
func (m *Machine) Save() (*Snapshot, error) {
	v, err := m.method("save_state")
	if err != nil {
		return nil, err
	}
	state, ok := v.Export().(goja.ArrayBuffer)
	if !ok {
		return nil, errors.New("the emulator did not save itself")
	}
	return &Snapshot{Clock: m.clock.duration(), Console: m.Console.state(), Channel: m.Channel.state(), State: state.Bytes()}, nil
}

// Restore takes the machine back to a snapshot of it, or of one of the same
// size. What the ports had queued is gone.
func (m *Machine) Restore(s *Snapshot) error {
	m.clock.set(s.Clock) // the emulator counts from what it finds
	if _, err := m.method("restore_state", m.script.vm.ToValue(m.script.vm.NewArrayBuffer(s.State))); err != nil {
		return err
	}
	m.Console.restore(s.Console)
	m.Channel.restore(s.Channel)
	return nil
}

// method calls a method of the emulator and returns what it promised.
func (m *Machine) method(name string, args ...goja.Value) (goja.Value, error) {
	f, ok := goja.AssertFunction(m.emulator.Get(name))
	if !ok {
		return nil, fmt.Errorf("the emulator has no %s", name)
	}
	v, err := f(m.emulator, args...)
	if err == nil {
		v, err = settled(v)
	}
	if err == nil {
		err = m.script.err
	}
	return v, err
}

// Encode returns the part of a snapshot that is not State.
func (s *Snapshot) Encode() ([]byte, error) { return json.Marshal(s) }

// Decode reads what Encode returned.
func (s *Snapshot) Decode(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(s)
}
