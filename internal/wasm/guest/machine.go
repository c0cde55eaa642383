package guest

import (
	"context"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// machine is the environment of one program.
type machine struct {
	r      *runner
	run    *call.Run
	began  time.Time
	cpu    time.Duration // of the process, at the program's start
	memory memory
	fds    fdTable
	used   int // bytes that system calls have allocated since the last collection, approximately
	answer call.Answer
}

// machineKey is the context key of the machine.
type machineKey struct{}

func newMachine(r *runner, run *call.Run) *machine {
	m := &machine{r: r, run: run, began: time.Now(), cpu: cpuTime()}
	m.memory.limit, m.memory.grant = run.Memory, m.grant
	m.fds.init()
	return m
}

// context returns a context with the machine and its memory, for host functions.
func (m *machine) context() context.Context {
	ctx := context.WithValue(context.Background(), machineKey{}, m)
	return experimental.WithMemoryAllocator(ctx, &m.memory)
}

func machineOf(ctx context.Context) *machine { return ctx.Value(machineKey{}).(*machine) }

// collectAfter is the number of bytes that system calls allocate between two garbage collections.
const collectAfter = 16 << 20

// call forwards a system call to the worker. The answer is valid until the next call.
func (m *machine) call(q *call.Request) *call.Answer {
	if m.used += 512 + len(q.Path) + len(q.To); m.used > collectAfter {
		m.used = 0
		runtime.GC()
	}
	if err := m.r.conn.Send(call.KindRequest, q); err != nil {
		fail(err)
	}
	f := <-m.r.frames
	if err := call.Expect(f.kind, call.KindAnswer); err != nil {
		fail(err)
	}
	if err := m.answer.Decode(f.payload); err != nil {
		fail(err)
	}
	return &m.answer
}

// grant requests an amount of linear memory.
func (m *machine) grant(size int64) bool {
	return m.call(&call.Request{Op: call.Memory, Size: size}).Errno == 0
}

// since returns how long the program has run, which is its monotonic clock.
func (m *machine) since() time.Duration { return time.Since(m.began) }

// pageSize is the size of a page of linear memory, in bytes.
const pageSize = 64 << 10

// need reports whether an instance may have its initial memory. Without this check, the creation of
// the instance would panic.
func (m *machine) need(mod interface {
	ExportedMemories() map[string]api.MemoryDefinition
}) bool {
	for _, def := range mod.ExportedMemories() {
		if size := int64(def.Min()) * pageSize; size > m.memory.limit || !m.grant(size) {
			m.memory.denied = true
			return false
		}
	}
	return true
}

// stderr writes to the program's standard error.
func (m *machine) stderr(text string) {
	m.call(&call.Request{Op: call.Write, Handle: uint32(2), Data: []byte(text)})
}
