package spawn

import (
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar"
)

// Program is the agent's program as an open file, so that the sandbox's user,
// who may not be able to reach the daemon's binary by name, can execute it. A
// copy in memory is sealed: nothing that runs it can change it.
type Program struct{ f *os.File }

// OpenProgram makes one of the agent's program; nil stands for the running
// binary, which must then call agent.Main when agent.IsAgent.
func OpenProgram(binary []byte) (*Program, error) {
	if binary == nil {
		return openSelf()
	}
	f, err := Sealed("sandbar-agent", binary, unix.MFD_EXEC)
	if err != nil {
		return nil, err
	}
	return &Program{f}, nil
}

// Sealed makes a file in memory that nothing can change, read from its beginning.
// flags are more of memfd_create's.
func Sealed(name string, content []byte, flags int) (*os.File, error) {
	flags |= unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags)
	if err == unix.EINVAL { // before 6.3 there was no MFD_EXEC and no need for it
		fd, err = unix.MemfdCreate(name, flags&^unix.MFD_EXEC)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "no memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = seal(fd)
	}
	if err != nil {
		f.Close()
		return nil, sandbar.Errorf(sandbar.Internal, "filling the memory file %s: %w", name, err)
	}
	return f, nil
}

// sealTries is how often, and sealPause how long apart, sealing is tried.
const (
	sealTries = 50
	sealPause = 20 * time.Millisecond
)

// seal forbids every change of a memory file, for ever. The kernel refuses with
// EBUSY while anything holds one of its pages, as reclaim and migration do for
// a moment on a busy host.
func seal(fd int) error {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	for try := 1; ; try++ {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		if err != unix.EBUSY || try == sealTries {
			return err
		}
		time.Sleep(sealPause)
	}
}

// openSelf uses the running binary, as a copy where others may not execute it.
func openSelf() (*Program, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "opening the running binary: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&0o001 != 0 {
		return &Program{f}, nil
	}
	f.Close()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Internal, "reading the running binary: %w", err)
	}
	return OpenProgram(b)
}

// start starts the program. Its own file goes with it, as the descriptor after
// files: that is a name that files, which take the place of this process's
// descriptors before the exec, cannot come to cover.
func (a *Program) start(args []string, files []*os.File, attr *syscall.SysProcAttr) (*os.Process, error) {
	return os.StartProcess("/proc/self/fd/"+strconv.Itoa(len(files)), args, &os.ProcAttr{
		Dir: "/", Env: agentEnv, Files: append(slices.Clone(files), a.f), Sys: attr,
	})
}

// Close closes the file. What runs it goes on.
func (a *Program) Close() error { return a.f.Close() }
