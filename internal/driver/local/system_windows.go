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

// spawner starts programs, each in a job object of its own. The system ends a job's processes when
// its last handle is closed, and so also with the daemon.
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

// child is a program and the job that contains it and its descendants.
type child struct {
	proc *os.Process

	mu    sync.Mutex
	job   windows.Handle // 0 once closed
	by    int            // the signal with which this process ended the job, if it did
	ended bool
}

// start starts a program suspended, assigns it to its job and resumes it, so that no descendant can
// be outside of the job.
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

// wait blocks until the program has exited. If the program left processes in its job, the job stays
// until kill.
func (c *child) wait() (exitStatus, error) {
	state, err := c.proc.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.job != 0 && jobEmpty(c.job) {
		windows.CloseHandle(c.job)
		c.job = 0
	}
	if err != nil {
		return exitStatus{outcome: sandbar.Lost}, sandbar.Errorf(sandbar.Internal, "waiting for process %d: %w", c.proc.Pid, err)
	}
	e := exitStatus{outcome: sandbar.Exited, code: state.ExitCode() & 0xff, cpu: state.UserTime() + state.SystemTime()}
	if c.by != 0 {
		e = exitStatus{outcome: sandbar.Signaled, signal: c.by, cpu: e.cpu}
	}
	return e, nil
}

// lingers reports whether the child may have remaining processes.
func (c *child) lingers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.job != 0
}

// signal supports only TERM and KILL, which end the whole job at once.
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

// kill kills the program and its descendants, and closes the job.
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

// killTagged does nothing: the jobs have ended all processes.
func killTagged(context.Context, string, []*child) error { return nil }

// leftProcesses returns none: a job ends with its daemon.
func leftProcesses(context.Context, string, bool) ([]int, error) { return nil, nil }

func maxFiles() int64 { return math.MaxInt64 }

// pending is not needed: pipes have no deadlines here.
func pending(*os.File) int { return 0 }

// executable finds path, with the extensions of PATHEXT.
func executable(path string) (string, error) {
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fs.ErrNotExist
	}
	return found, nil
}

// newLock creates a file that no other process can open while it is open here.
func newLock(path string) (*os.File, error) { return openAlone(path, windows.CREATE_NEW) }

// lockFile opens such a file. The lock ends with the process.
func lockFile(path string) (*os.File, error) { return openAlone(path, windows.OPEN_EXISTING) }

func openAlone(path string, how uint32) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	// Sharing the deletion: the file is removed last, while it is still open.
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, windows.FILE_SHARE_DELETE, nil, how, 0, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), path), nil
}

const nonblock = 0

// errQuota is the error for an exhausted disk quota.
const errQuota = windows.ERROR_DISK_QUOTA_EXCEEDED

func owner(fs.FileInfo) (uid, gid uint32) { return 0, 0 }

func renameFile(from, to string) error { return os.Rename(from, to) }

// renameNew renames without replacing.
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

// notLink has no effect: links are checked before.
const notLink = 0

// chownTree fails: files have no numeric owners here.
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

// removeAll removes a directory of the driver. A file of an exiting process can stay locked for a
// moment.
func removeAll(path string) (err error) {
	for range 20 {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// chmodBelow does nothing: the only permission here is "read only", which has no use for a tree.
func chmodBelow(context.Context, string, fs.FileMode) error { return nil }

const defaultPath = `C:\Windows\System32;C:\Windows`

var (
	inheritedBySystem = []string{"SystemRoot", "SystemDrive", "windir", "ComSpec", "PATHEXT", "ProgramFiles",
		"ProgramFiles(x86)", "ProgramData", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE"}
	homeNames = []string{"HOME", "USERPROFILE"}
	tmpNames  = []string{"TMPDIR", "TEMP", "TMP"}
)
