// Package monitor is the interface between the vm driver and a virtual machine monitor: the program
// that runs a machine. Package qemu implements it.
//
// A monitor process receives all its files as descriptors, and opens no path of the host except
// its own libraries and firmware. The driver starts and kills the process (Launcher); a Monitor
// computes its command line and controls it.
package monitor

import (
	"context"
	"net"
	"os"
)

// Monitor boots machines and restores them from snapshots. Its methods may be called concurrently.
// Errors of Boot and Restore contain the last words of the process.
type Monitor interface {
	// Facts returns what snapshots depend on.
	Facts() Facts
	// Boot starts a machine. The memory of the machine is Boot.RAM.
	Boot(ctx context.Context, l Launcher, b Boot) (VM, error)
	// Restore starts a machine from a snapshot, and returns when it runs. The machine maps
	// Snapshot.RAM copy-on-write.
	Restore(ctx context.Context, l Launcher, m Machine, s Snapshot) (VM, error)
}

// Facts describe a monitor on this host. A snapshot of one monitor works only with the same Facts.
type Facts struct {
	// Build is the monitor's name, version and package.
	Build string
	// Accelerator is "kvm", or "tcg" for emulation.
	Accelerator string
	// CPU is the processor model that the machine sees.
	CPU string
}

// Machine is the hardware of a machine.
type Machine struct {
	// Name appears in the command line of the process.
	Name string
	// Memory is in bytes, a multiple of 1 MiB.
	Memory int64
	// Processors is the number of virtual processors.
	Processors int
	// Root is the read-only disk.
	Root *os.File
	// Spare, if set, is an empty file into which SaveDevices can write.
	Spare *os.File
	// Network is a connected stream socket for the machine's packets (wire.PacketReader); nil for a
	// machine that cannot send any.
	Network *os.File
}

// Boot is a machine that boots.
type Boot struct {
	Machine
	// Kernel is an uncompressed kernel with a PVH entry point.
	Kernel, Initramfs *os.File
	Cmdline           string
	// Snapshot are the files that Save completes. Their size is that of the memory and 0.
	Snapshot
}

// Snapshot are the files of a saved machine.
type Snapshot struct {
	RAM   *os.File // the memory
	State *os.File // processors and devices
	// OfDevices: State is of SaveDevices and not of Save.
	OfDevices bool
}

// VM is a machine.
type VM interface {
	// Agent is the connection to the machine's port.
	Agent() net.Conn
	// Save writes the snapshot of a machine that was booted. It stops the machine permanently.
	Save(ctx context.Context) error
	// Stop stops the processors of the machine, until Continue. The machine's clocks stand still
	// meanwhile. Stop can fail after it has stopped them.
	Stop(ctx context.Context) error
	// Continue lets a stopped machine run.
	Continue(ctx context.Context) error
	// SaveDevices writes the state of processors and devices of a stopped machine into
	// Machine.Spare, and replaces its content. The memory is not part of it.
	SaveDevices(ctx context.Context) error
	// Dead is closed when the process has ended.
	Dead() <-chan struct{}
	// LastWords is the end of the process's error output, for error messages.
	LastWords() string
	// Close closes the connections, after the process has been killed.
	Close() error
}

// Program is a monitor process to start.
type Program struct {
	Path      string
	Args, Env []string
	// Libraries are directories and files of the host that the program needs, besides those of
	// /usr and /lib*.
	Libraries []string
	// Files are the descriptors that the process inherits, as FirstFile, FirstFile+1, ….
	Files []*os.File
	// Stderr is the process's error output.
	Stderr *os.File
}

// FirstFile is the number of Program.Files[0] in the process.
const FirstFile = 4

// Launcher starts one process, confined. It returns when the program has been executed.
type Launcher interface {
	Launch(ctx context.Context, p Program) error
}
