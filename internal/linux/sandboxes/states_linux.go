package sandboxes

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sandbar-dev/sandbar"
)

// A state of driver.Saver is a directory with files that its driver defines and a description,
// which is written last.

// MaxDescription bounds the description of a state, in bytes.
const MaxDescription = 64 << 10

// SaveError returns the error of a failed save, with a code of driver.Saver. The code is Gone if
// dead, the channel that closes with the sandbox, is closed.
func SaveError(err error, dead <-chan struct{}) error {
	select {
	case <-dead:
		return &sandbar.Error{Code: sandbar.Gone, Message: "the sandbox has ended", Err: err, Fix: "create a new one"}
	default:
	}
	var own *sandbar.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return &sandbar.Error{Code: sandbar.Exhausted, Message: "saving a sandbox: the disk of the state directory is full", Err: err,
			Fix: "free space, or set state_dir to a directory on another disk"}
	}
	return sandbar.Errorf(sandbar.Internal, "saving a sandbox: %w", err)
}

// StateTooLarge is the error of a state that exceeds driver.SaveOptions.MaxBytes.
func StateTooLarge() error {
	return &sandbar.Error{Code: sandbar.Exhausted, Message: "the sandbox's state takes more space than is left for paused sandboxes",
		Fix: "resume or remove paused sandboxes, or let the operator raise paused.max_bytes or paused.client_share"}
}

// StateDamaged is the error of a state that can never be restored.
func StateDamaged(err error) error {
	return &sandbar.Error{Code: sandbar.Gone, Message: "the saved state of the sandbox is damaged", Err: err,
		Fix: "remove the sandbox with `sandbar stop`; check the disk of the state directory"}
}

// StateUnusable is the error of a whole state that this daemon cannot use.
func StateUnusable(what, fix string) error {
	return &sandbar.Error{Code: sandbar.Unsupported, Message: "the saved state of the sandbox cannot be used: " + what,
		Fix: fix + ", or remove the sandbox with `sandbar stop`"}
}

// DescribeState writes the description of a state to a new file. With sync it returns when the file
// and the names of all files beside it are on disk.
func DescribeState(path string, description any, sync bool) error {
	b, err := json.MarshalIndent(description, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(b, '\n')); err != nil || !sync {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return errors.Join(f.Sync(), d.Sync())
}

// ReadState reads the description of a state. Its error is that of StateDamaged.
func ReadState(path string, description any) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > MaxDescription {
		err = errors.New("the description is too large")
	}
	if err == nil {
		err = json.Unmarshal(b, description)
	}
	if err != nil {
		return StateDamaged(err)
	}
	return nil
}
