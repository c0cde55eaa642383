package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dop251/goja"
)

// Snapshot is a saved machine. Besides the emulator's own state it has the machine's clock, without
// which the guest's timers would not fire, and the serial ports.
type Snapshot struct {
	Clock            time.Duration
	Console, Channel portState
	// State is in the emulator's own format. It must not be modified.
	State []byte `json:"-"`
}

// ImportState returns a snapshot with a state that another host of the emulator has saved. The
// serial ports are set up as by Linux with a console on COM1. The clock is set to one year, so that
// all the guest's timers are due.
func ImportState(state []byte) *Snapshot {
	const late = 365 * 24 * time.Hour
	console := portState{Enable: enableReceive | 0x04, FIFO: fifoEnable, Line: 0x13, Modem: modemOut2 | modemRTS | 1}
	return &Snapshot{Clock: late, Console: console, State: state}
}

// Save copies the machine's state. It must not be called during a step.
func (m *Machine) Save() (*Snapshot, error) {
	v, err := m.method("save_state")
	if err != nil {
		return nil, err
	}
	state, ok := v.Export().(goja.ArrayBuffer)
	if !ok {
		return nil, errors.New("the emulator saved no state")
	}
	return &Snapshot{Clock: m.clock.duration(), Console: m.Console.state(), Channel: m.Channel.state(), State: state.Bytes()}, nil
}

// Restore resets the machine to a snapshot of a machine with the same memory size. It empties the
// ports' queues.
func (m *Machine) Restore(s *Snapshot) error {
	m.clock.set(s.Clock) // restore_state reads the clock
	if _, err := m.method("restore_state", m.script.vm.ToValue(m.script.vm.NewArrayBuffer(s.State))); err != nil {
		return err
	}
	m.Console.restore(s.Console)
	m.Channel.restore(s.Channel)
	return nil
}

// method calls a method of the emulator and returns the result of its promise.
func (m *Machine) method(name string, args ...goja.Value) (goja.Value, error) {
	f, ok := goja.AssertFunction(m.emulator.Get(name))
	if !ok {
		return nil, fmt.Errorf("the emulator has no %s", name)
	}
	v, err := f(m.emulator, args...)
	if err == nil {
		v, err = promiseResult(v)
	}
	if err == nil {
		err = m.script.err
	}
	return v, err
}

// Encode returns a snapshot without State, as JSON.
func (s *Snapshot) Encode() ([]byte, error) { return json.Marshal(s) }

// Decode decodes the result of Encode.
func (s *Snapshot) Decode(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(s)
}
