package wire

// Suspend, Resume and Continue let the host save a whole machine while programs run in it.
//
// Suspend makes the agent freeze all programs and answer. That Reply is its last frame, so nothing
// is on the way in either direction when the host saves the machine. The host itself sends nothing
// between Suspend and the next two:
//
//   - Continue, to the same machine: it goes on. It has no answer.
//   - Resume and then Continue, to a machine that was restored from what was saved.

// Resume tells an agent that its machine was restored and that the host of its former requests is
// gone. The agent ends what that host had open: it closes the input of programs, drops their
// output, and closes files and connections. Then it applies Renew and answers. Programs stay frozen
// until Continue, so none runs before that.
type Resume struct {
	// FirstID is the least id of a request of this host. The agent drops frames for smaller ones.
	FirstID uint32
	Renew   Renew
}

// Append appends the encoding of m.
func (m *Resume) Append(b []byte) []byte { return m.Renew.Append(appendU32(b, m.FirstID)) }

// Decode reads m from a payload.
func (m *Resume) Decode(p []byte) error {
	d := decoder{b: p}
	m.FirstID = d.u32()
	if d.failed {
		return errShort
	}
	return m.Renew.Decode(d.b)
}
