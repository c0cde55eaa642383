package local

import (
	"context"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"github.com/sandbar-dev/sandbar"
)

// spawner starts programs, each in a job object of its own. The job ends with
// all its processes when its last handle is closed, so also with the daemon.
type spawner struct{ resume *windows.LazyProc }

func newSpawner() (*spawner, error) {
	resume := windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")
	if err := resume.Find(); err != nil {
		return nil, sandbar.Errorf(sandbar.Unsupported, "driver local needs NtResumeProcess: %w", err)
	}
	return &spawner{resume: resume}, nil
}

func (s *spawner) close() {}

func (s *spawner) setsLimits() bool { return false }

// child is a program and the job that holds it and all it starts.
type child struct {
	proc *os.Process

	mu    sync.Mutex
	job   windows.Handle // 0 once closed
	by    int            // the signal that ended the job, if we did
	ended bool
}

// start starts a program suspended, puts it in its job and lets it run, so
// that nothing it starts can be outside.
func (s *spawner) start(l launch, std [3]*os.File) (*child, error) {
	job, err := newJob()
	if err != nil {
		return nil, err
	}
	p, err := os.StartProcess(l.path, l.args, &os.ProcAttr{
		Dir: l.dir, Env: l.env, Files: std[:],
		Sys: &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true},
	})
	if err != nil {
		windows.CloseHandle(job)
		return nil, err
	}
	var joined error
	err = p.WithHandle(func(h uintptr) {
		if joined = windows.AssignProcessToJobObject(job, windows.Handle(h)); joined == nil {
			if status, _, _ := s.resume.Call(h); status != 0 {
				joined = windows.NTStatus(status)
			}
		}
	})
	if err == nil {
		err = joined
	}
	if err != nil {
		p.Kill()
		p.Wait()
		windows.CloseHandle(job)
		return nil, err
	}
	return &child{proc: p, job: job}, nil
}

func (c *child) pid() int { return c.proc.Pid }

// wait blocks until the program has ended. Its job stays until kill when the
// program left something behind in it.
func (c *child) wait() (ending, error) {
	state, err := c.proc.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.job != 0 && jobEmpty(c.job) {
		windows.CloseHandle(c.job)
		c.job = 0
	}
	if err != nil {
		return ending{outcome: sandbar.Lost}, sandbar.Errorf(sandbar.Internal, "waiting for process %d: %w", c.proc.Pid, err)
	}
	e := ending{outcome: sandbar.Exited, code: state.ExitCode() & 0xff, cpu: state.UserTime() + state.SystemTime()}
	if c.by != 0 {
		e = ending{outcome: sandbar.Signaled, signal: c.by, cpu: e.cpu}
	}
	return e, nil
}

// lingers reports whether there may be processes of this child's to end.
func (c *child) lingers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.job != 0
}

// signal knows only ends: TERM and KILL end the whole job at once.
func (c *child) signal(sig int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	if sig != int(syscall.SIGKILL) && sig != int(syscall.SIGTERM) {
		return sandbar.Errorf(sandbar.Unsupported, "signal %d: this system has only TERM (15) and KILL (9)", sig)
	}
	c.by = sig
	if err := windows.TerminateJobObject(c.job, uint32(sig)); err != nil {
		return sandbar.Errorf(sandbar.Internal, "ending process %d: %w", c.proc.Pid, err)
	}
	return nil
}

// kill ends the program and everything it started, and closes the job.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.job == 0 {
		return
	}
	if !c.ended {
		c.by = int(syscall.SIGKILL)
	}
	windows.TerminateJobObject(c.job, uint32(syscall.SIGKILL))
	windows.CloseHandle(c.job)
	c.job = 0
}

// killMarked has nothing to add to the end of the jobs.
func killMarked(context.Context, string, []*child) error { return nil }

// leftProcesses finds none: a job ends with its daemon.
func leftProcesses(context.Context, string, bool) ([]int, error) { return nil, nil }

func maxFiles() int64 { return math.MaxInt64 }

// pending is not needed where pipes have no deadlines.
func pending(*os.File) int { return 0 }

// executable finds path, with the endings that PATHEXT allows.
func executable(path string) (string, error) {
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fs.ErrNotExist
	}
	return found, nil
}

// newLock makes a file that nobody else can open while it is open here.
func newLock(path string) (*os.File, error) { return openAlone(path, windows.CREATE_NEW) }

// lockFile opens such a file. The lock goes with the process, however that ends.
func lockFile(path string) (*os.File, error) { return openAlone(path, windows.OPEN_EXISTING) }

func openAlone(path string, how uint32) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	// Others may delete it: it is the last thing removed, and held till then.
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.FILE_SHARE_DELETE, nil, how, 0, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), path), nil
}

const nonblock = 0

// errQuota is what the system says when a user's share of a disk is used up.
const errQuota = windows.ERROR_DISK_QUOTA_EXCEEDED

func owner(fs.FileInfo) (uid, gid uint32) { return 0, 0 }

func renameFile(from, to string) error { return os.Rename(from, to) }

// renameNew renames, but replaces nothing.
func renameNew(from, to string) error {
	old, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	return windows.MoveFileEx(old, name, 0)
}

// notLink has no meaning where links are looked for before.
const notLink = 0

// chownTree cannot do anything: files have owners of another kind here.
func chownTree(context.Context, string, uint32, uint32, bool) error {
	return sandbar.Errorf(sandbar.Unsupported, "files have no numbered owners on this system")
}

func openDir(path string) (*os.File, error) { return os.Open(path) }

func removeTree(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// removeAll removes a directory of the driver's own. A file of a process that
// is just ending can stay locked for a moment.
func removeAll(path string) (err error) {
	for range 20 {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// chmodBelow does nothing: the only permission here is "read only", and of a
// tree that is no help to anybody.
func chmodBelow(context.Context, string, fs.FileMode) error { return nil }

const defaultPath = `C:\Windows\System32;C:\Windows`

var (
	inheritedBySystem = []string{"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "ProgramFiles",
		"ProgramFiles(x86)", "ProgramData", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"}
	homeNames = []string{"HOME", "USERPROFILE"}
	tmpNames  = []string{"TMPDIR", "TEMP", "TMP"}
)
