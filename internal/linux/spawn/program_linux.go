package spawn

import (
	"bytes"
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
// who may not be able to reach the daemon's binary by name, can execute it. It is
// always a sealed copy in memory, never a file of the host: nothing that runs it can
// change its content, and from Linux 6.3 on nothing can take the right to execute it.
type Program struct{ f *os.File }

// OpenProgram makes one of the agent's program; nil stands for the running
// binary, which must then call agent.Main when agent.IsAgent. The copy takes as much
// memory as the binary, once: agents share its pages.
//
// Where programs share the daemon's user (ids.Ranged is false) they would own the
// file, if they reached it. It cannot be read there, so that the kernel shows the files
// of /proc of a process that executes it to nobody but root, and the one way to it
// through another process is shut. Its mode is also the least that executing it needs,
// so that no change of the mode that the seals leave possible has an effect.
func OpenProgram(binary []byte, ids IDs) (*Program, error) {
	mode := uint32(0o555)
	if !ids.Ranged {
		mode = 0o111
	}
	var content io.Reader = bytes.NewReader(binary)
	if binary == nil {
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			return nil, sandbar.Errorf(sandbar.Internal, "opening the running binary: %w", err)
		}
		defer self.Close()
		content = self
	}
	f, err := sealed("sandbar-agent", content, unix.MFD_EXEC, mode)
	if err != nil {
		return nil, err
	}
	return &Program{f}, nil
}

// Sealed makes a file in memory that nothing can change, read from its beginning.
// flags are more of memfd_create's.
func Sealed(name string, content []byte, flags int) (*os.File, error) {
	return sealed(name, bytes.NewReader(content), flags, 0o555)
}

func sealed(name string, content io.Reader, flags int, mode uint32) (*os.File, error) {
	flags |= unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags)
	if err == unix.EINVAL { // before 6.3 there was no MFD_EXEC and no need for it
		fd, err = unix.MemfdCreate(name, flags&^unix.MFD_EXEC)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "no memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(f, content)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = unix.Fchmod(fd, mode)
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
// a moment on a busy host. Before Linux 6.3 there is no seal on the right to execute.
func seal(fd int) error {
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_EXEC
	for try := 1; ; try++ {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		if err == unix.EINVAL && seals&unix.F_SEAL_EXEC != 0 {
			seals &^= unix.F_SEAL_EXEC
			continue
		}
		if err != unix.EBUSY || try == sealTries {
			return err
		}
		time.Sleep(sealPause)
	}
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
