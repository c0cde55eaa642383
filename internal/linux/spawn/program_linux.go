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

// Program is an open file with the agent's program. The sandbox's user executes it by its
// descriptor, because that user may have no access to the path of the daemon's binary. The file is
// a sealed memfd (memfd_create(2)): no process can change its content or, on Linux 6.3 and later,
// its execute permission.
type Program struct{ f *os.File }

// OpenProgram returns a Program with the content binary. nil means the running binary, which must
// then call agent.Main when agent.IsAgent. The copy takes the memory of the binary once per daemon:
// agents share its pages.
//
// If programs run as the daemon's user (ids.Ranged is false), they own the file. It then has mode
// 0111: the kernel marks a process that executes an unreadable file as not dumpable (execve(2)), so
// only root can open the file through /proc/PID (proc(5)). F_SEAL_EXEC protects exactly the bits
// 0111. Agents start whatever the other bits of the mode are.
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
	f, err := sealed("sandbar-agent", content, unix.MFD_EXEC, contentSeals|unix.F_SEAL_EXEC, mode)
	if err != nil {
		return nil, err
	}
	return &Program{f}, nil
}

// Sealed returns a memfd with a content that cannot change. Its offset is 0. flags are additional
// flags of memfd_create(2). It has exactly the seals of the copy that runc and crun make of
// themselves: with these they make none.
func Sealed(name string, content []byte, flags int) (*os.File, error) {
	return sealed(name, bytes.NewReader(content), flags, contentSeals, 0o555)
}

func sealed(name string, content io.Reader, flags, seals int, mode uint32) (*os.File, error) {
	flags |= unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags)
	if err == unix.EINVAL { // Linux before 6.3 has no MFD_EXEC: all memfds are executable
		fd, err = unix.MemfdCreate(name, flags&^unix.MFD_EXEC)
	}
	if err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "creating the memory file %s: %w", name, err)
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
		err = seal(fd, seals)
	}
	if err != nil {
		f.Close()
		return nil, sandbar.Errorf(sandbar.Internal, "filling the memory file %s: %w", name, err)
	}
	return f, nil
}

// seal makes at most sealTries attempts, sealPause apart.
const (
	sealTries = 50
	sealPause = 20 * time.Millisecond
)

// contentSeals forbid all changes of the content, and further seals.
const contentSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// seal adds seals to a memory file, permanently. The kernel returns EBUSY while a page of it has an
// extra reference, which reclaim and migration briefly hold on a busy host. Linux before 6.3 has no
// F_SEAL_EXEC.
func seal(fd, seals int) error {
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

// start starts the program. The process inherits the program's file as the descriptor after files
// and executes it by that number, because files replace the lower descriptors before the exec.
func (a *Program) start(args []string, files []*os.File, attr *syscall.SysProcAttr) (*os.Process, error) {
	return os.StartProcess("/proc/self/fd/"+strconv.Itoa(len(files)), args, &os.ProcAttr{
		Dir: "/", Env: agentEnv, Files: append(slices.Clone(files), a.f), Sys: attr,
	})
}

// Close closes the file. Processes that execute it continue.
func (a *Program) Close() error { return a.f.Close() }
