package main

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/agent"
	"github.com/sandbar-dev/sandbar/internal/agent/boot"
	"github.com/sandbar-dev/sandbar/internal/agent/wire"
)

func main() {
	boot.Main()
	if len(os.Args) != 2 || os.Args[0] != agent.Name || os.Args[1] != agent.ModeMachine {
		agent.Main() // on the host it is a usual agent's program
	}
	serve()
	rest()
}

// rest never returns. The Go runtime ends a program without any goroutine that can run.
func rest() {
	for {
		time.Sleep(time.Hour)
	}
}

// port is the connection as package boot opens it: in non-blocking mode, without the Go runtime's
// poller.
type port int

// wait waits until the port is ready.
func (p port) wait(events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(p), Events: events}}, -1)
}

// Read implements io.Reader.
func (p port) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(p), b)
		if err != unix.EAGAIN {
			return n, err
		}
		p.wait(unix.POLLIN)
	}
}

// Write implements io.Writer.
func (p port) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n, err := unix.Write(int(p), b[done:])
		if err == unix.EAGAIN {
			p.wait(unix.POLLOUT)
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(b), nil
}

// send sends a frame.
func send(kind wire.Type, id uint32, payload []byte) {
	b := wire.AppendHeader(nil, wire.Header{Length: uint32(len(payload)), Type: kind, ID: id})
	port(agent.MachineSocketFD).Write(append(b, payload...))
}

// reply answers a request.
func reply(id uint32, failure wire.Failure, errno syscall.Errno, data []byte) {
	r := wire.Reply{Failure: failure, Errno: uint32(errno), Data: data}
	send(wire.TypeReply, id, r.Append(nil))
}

// serve plays the agent until an attack is asked for.
func serve() {
	hello := wire.Hello{Generation: wire.Generation}
	send(wire.TypeHello, 0, hello.Append(nil))
	for {
		head := make([]byte, wire.HeaderSize)
		if _, err := io.ReadFull(port(agent.MachineSocketFD), head); err != nil {
			return
		}
		h, err := wire.ParseHeader(head)
		if err != nil {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(port(agent.MachineSocketFD), payload); err != nil {
			return
		}
		switch h.Type {
		case wire.TypeSetup:
			var s wire.Setup
			if s.Decode(payload) != nil {
				return
			}
			reply(h.ID, wire.OK, 0, wire.AppendHandle(nil, 1))
			for _, kv := range s.Env {
				if name, ok := strings.CutPrefix(kv, "HOSTILE="); ok {
					attack(name)
				}
			}
		case wire.TypeStart:
			reply(h.ID, wire.FailExec, syscall.ENOENT, nil) // no shell: the template is complete
		case wire.TypeClock: // has no answer
		default:
			reply(h.ID, wire.OK, 0, nil)
		}
	}
}

// attack does not return, except for lies.
func attack(name string) {
	switch name {
	case "garbage":
		for b := make([]byte, 64<<10); ; {
			for i := range b {
				b[i] = byte(rand.Uint32())
			}
			port(agent.MachineSocketFD).Write(b)
		}
	case "frames":
		kinds := []wire.Type{wire.TypeHello, wire.TypeReply, wire.TypeExited, wire.TypeData, wire.TypeCredit, wire.TypeClose, wire.TypeSpawn, wire.TypeRenew}
		for id := uint32(0); ; id++ {
			send(kinds[rand.IntN(len(kinds))], id%64, make([]byte, rand.IntN(32<<10)))
		}
	case "huge":
		port(agent.MachineSocketFD).Write(wire.AppendHeader(nil, wire.Header{Length: wire.MaxPayload, Type: wire.TypeReply, ID: 1}))
	case "stutter":
		r := wire.Reply{}
		payload := r.Append(nil)
		for _, c := range append(wire.AppendHeader(nil, wire.Header{Length: uint32(len(payload)), Type: wire.TypeReply, ID: 1 << 20}), payload...) {
			port(agent.MachineSocketFD).Write([]byte{c})
			time.Sleep(100 * time.Millisecond)
		}
	case "lies":
		go func() {
			for id := uint32(0); ; id = (id + 1) % 16 {
				reply(id, wire.Failure(rand.IntN(12)), syscall.Errno(rand.IntN(200)), make([]byte, rand.IntN(4000)))
				time.Sleep(time.Millisecond)
			}
		}()
		return
	case "packets":
		for b := make([]byte, wire.PacketHead+wire.MaxPacket); ; {
			n := 20 + rand.IntN(2000)
			wire.AppendPacketHead(b[:0], n)
			p := b[wire.PacketHead : wire.PacketHead+n]
			for i := range p {
				p[i] = byte(rand.Uint32())
			}
			p[0], p[2], p[3] = 0x45, byte(n>>8), byte(n)
			p[9] = []byte{6, 17}[rand.IntN(2)]
			copy(p[12:], []byte{192, 0, 0, 2})
			port(agent.MachineNetworkFD).Write(b[:wire.PacketHead+n])
		}
	case "halt":
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case "panic":
		os.Exit(1) // the kernel panics without its first process
	case "devices":
		pokeDevices()
	}
	rest()
}

// pokeDevices writes random values to the registers of all PCI devices, without end.
func pokeDevices() {
	const dir = "/tmp/sysfs"
	_ = os.Mkdir(dir, 0o755)
	if unix.Mount("sysfs", dir, "sysfs", 0, "") != nil {
		return
	}
	names, _ := filepath.Glob(dir + "/bus/pci/devices/*/resource[0-9]")
	config, _ := filepath.Glob(dir + "/bus/pci/devices/*/config")
	var regions [][]byte
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		if err == nil {
			if m, err := unix.Mmap(int(f.Fd()), 0, int(min(info.Size(), 1<<20)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
				regions = append(regions, m)
			}
		}
	}
	for {
		for _, m := range regions {
			for range 1000 {
				m[rand.IntN(len(m))] = byte(rand.Uint32())
			}
		}
		for _, name := range config {
			if f, err := os.OpenFile(name, os.O_WRONLY, 0); err == nil {
				_, _ = f.WriteAt([]byte{byte(rand.Uint32())}, int64(rand.IntN(256)))
				f.Close()
			}
		}
	}
}
