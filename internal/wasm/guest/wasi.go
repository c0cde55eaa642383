package guest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// This file and wasi_*.go implement WASI preview 1 (the witx of wasi_snapshot_preview1) with the
// worker's system calls.

// wasiModule is the name of WASI in modules' imports.
const wasiModule = "wasi_snapshot_preview1"

// wasiCall is a call of a WASI function in progress.
type wasiCall struct {
	*machine
	mod  api.Module
	mem  api.Memory
	args []uint64
}

func (c *wasiCall) u32(i int) uint32 { return uint32(c.args[i]) }
func (c *wasiCall) i64(i int) int64  { return int64(c.args[i]) }

// bytes is a view of the program's memory.
func (c *wasiCall) bytes(ptr, n uint32) ([]byte, bool) { return c.mem.Read(ptr, n) }

// path returns a copy of a path in the program's memory.
func (c *wasiCall) path(ptr, n uint32) (string, call.Errno) {
	b, ok := c.bytes(ptr, n)
	switch {
	case !ok:
		return "", call.EFAULT
	case n > 4096:
		return "", call.ENAMETOOLONG
	case strings.IndexByte(string(b), 0) >= 0:
		return "", call.EINVAL
	}
	return string(b), 0
}

func (c *wasiCall) put32(ptr, v uint32) call.Errno {
	if !c.mem.WriteUint32Le(ptr, v) {
		return call.EFAULT
	}
	return 0
}

func (c *wasiCall) put64(ptr uint32, v uint64) call.Errno {
	if !c.mem.WriteUint64Le(ptr, v) {
		return call.EFAULT
	}
	return 0
}

// wasiFunc is one function of WASI: its name, its parameters ("i" for 32 bits, "I" for 64), and its
// implementation.
type wasiFunc struct {
	name   string
	params string
	do     func(*wasiCall) call.Errno
}

func wasiFuncs() []wasiFunc {
	return []wasiFunc{
		{"args_get", "ii", func(c *wasiCall) call.Errno { return c.putStrings(c.run.Args) }},
		{"args_sizes_get", "ii", func(c *wasiCall) call.Errno { return c.putSizes(c.run.Args) }},
		{"environ_get", "ii", func(c *wasiCall) call.Errno { return c.putStrings(c.run.Env) }},
		{"environ_sizes_get", "ii", func(c *wasiCall) call.Errno { return c.putSizes(c.run.Env) }},
		{"clock_res_get", "ii", clockResGet},
		{"clock_time_get", "iIi", clockTimeGet},
		{"poll_oneoff", "iiii", pollOneoff},
		{"random_get", "ii", randomGet},
		{"sched_yield", "", func(*wasiCall) call.Errno { return 0 }},
		{"proc_raise", "i", func(*wasiCall) call.Errno { return call.ENOSYS }},

		{"fd_advise", "iIIi", func(c *wasiCall) call.Errno { return c.known(c.u32(0)) }},
		{"fd_allocate", "iII", fdAllocate},
		{"fd_close", "i", fdClose},
		{"fd_datasync", "i", func(c *wasiCall) call.Errno { return c.known(c.u32(0)) }},
		{"fd_fdstat_get", "ii", fdStatGet},
		{"fd_fdstat_set_flags", "ii", fdStatSetFlags},
		{"fd_fdstat_set_rights", "iII", func(c *wasiCall) call.Errno { return c.known(c.u32(0)) }},
		{"fd_filestat_get", "ii", fdFilestatGet},
		{"fd_filestat_set_size", "iI", fdFilestatSetSize},
		{"fd_filestat_set_times", "iIIi", fdFilestatSetTimes},
		{"fd_pread", "iiiIi", fdPread},
		{"fd_prestat_get", "ii", fdPrestatGet},
		{"fd_prestat_dir_name", "iii", fdPrestatDirName},
		{"fd_pwrite", "iiiIi", fdPwrite},
		{"fd_read", "iiii", fdRead},
		{"fd_readdir", "iiiIi", fdReaddir},
		{"fd_renumber", "ii", fdRenumber},
		{"fd_seek", "iIii", fdSeek},
		{"fd_sync", "i", func(c *wasiCall) call.Errno { return c.known(c.u32(0)) }},
		{"fd_tell", "ii", fdTell},
		{"fd_write", "iiii", fdWrite},

		{"path_create_directory", "iii", pathCreateDirectory},
		{"path_filestat_get", "iiiii", pathFilestatGet},
		{"path_filestat_set_times", "iiiiIIi", pathFilestatSetTimes},
		{"path_link", "iiiiiii", pathLink},
		{"path_open", "iiiiiIIii", pathOpen},
		{"path_readlink", "iiiiii", pathReadlink},
		{"path_remove_directory", "iii", pathRemoveDirectory},
		{"path_rename", "iiiiii", pathRename},
		{"path_symlink", "iiiii", pathSymlink},
		{"path_unlink_file", "iii", pathUnlinkFile},

		// Programs have no network, and no descriptor is a socket.
		{"sock_accept", "iii", noSocket},
		{"sock_recv", "iiiiii", noSocket},
		{"sock_send", "iiiii", noSocket},
		{"sock_shutdown", "ii", noSocket},
	}
}

func noSocket(c *wasiCall) call.Errno {
	if errno := c.known(c.u32(0)); errno != 0 {
		return errno
	}
	return call.ENOTSOCK
}

// exportWASI exports the functions to the modules of a runtime.
func exportWASI(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(wasiModule)
	for _, f := range wasiFuncs() {
		do := f.do
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			c := wasiCall{machine: machineOf(ctx), mod: mod, mem: mod.Memory(), args: stack}
			stack[0] = uint64(do(&c))
		}), valueTypes(f.params), []api.ValueType{api.ValueTypeI32}).Export(f.name)
	}
	b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(procExit), valueTypes("i"), nil).Export("proc_exit")
	_, err := b.Instantiate(ctx)
	return err
}

func valueTypes(params string) []api.ValueType {
	types := make([]api.ValueType, len(params))
	for i, p := range params {
		types[i] = api.ValueTypeI32
		if p == 'I' {
			types[i] = api.ValueTypeI64
		}
	}
	return types
}

// procExit ends the program.
func procExit(ctx context.Context, mod api.Module, stack []uint64) {
	code := uint32(stack[0])
	_ = mod.CloseWithExitCode(ctx, code)
	panic(sys.NewExitError(code)) // unwinds the program; the runtime catches it
}

// putSizes stores the number of strings and their total size in bytes.
func (c *wasiCall) putSizes(list []string) call.Errno {
	total := 0
	for _, s := range list {
		total += len(s) + 1
	}
	if errno := c.put32(c.u32(0), uint32(len(list))); errno != 0 {
		return errno
	}
	return c.put32(c.u32(1), uint32(total))
}

// putStrings stores NUL-terminated strings, and pointers to them.
func (c *wasiCall) putStrings(list []string) call.Errno {
	table, at := c.u32(0), c.u32(1)
	for i, s := range list {
		if errno := c.put32(table+uint32(i)*4, at); errno != 0 {
			return errno
		}
		if !c.mem.WriteString(at, s) || !c.mem.WriteByte(at+uint32(len(s)), 0) {
			return call.EFAULT
		}
		at += uint32(len(s)) + 1
	}
	return 0
}

func randomGet(c *wasiCall) call.Errno {
	b, ok := c.bytes(c.u32(0), c.u32(1))
	if !ok {
		return call.EFAULT
	}
	rand.Read(b) // never fails
	return 0
}

// putInfo stores a filestat.
func (c *wasiCall) putInfo(ptr uint32, s *call.Info) call.Errno {
	b, ok := c.bytes(ptr, 64)
	if !ok {
		return call.EFAULT
	}
	clear(b)
	put := binary.LittleEndian.PutUint64
	put(b[0:], 1) // one device
	put(b[8:], s.Inode)
	b[16] = byte(s.Type)
	put(b[24:], uint64(s.Links))
	put(b[32:], uint64(s.Size))
	put(b[40:], uint64(s.ATime))
	put(b[48:], uint64(s.MTime))
	put(b[56:], uint64(s.CTime))
	return 0
}
