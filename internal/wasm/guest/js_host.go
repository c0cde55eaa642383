package guest

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sandbar-dev/sandbar/internal/wasm/call"
)

// exportHost exports the functions that QuickJS imports besides WASI.
func exportHost(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder("env")
	for _, f := range []struct {
		name   string
		params string
		result bool
		do     func(v *vm, args []uint64) uint64
	}{
		{"host_get_timezone_offset", "ii", true, func(*vm, []uint64) uint64 { return 0 }}, // UTC
		// interruption is by kill
		{"host_interrupt", "", true, func(*vm, []uint64) uint64 { return 0 }},
		{"host_promise_rejection", "iii", false, promiseRejection},
		{"host_module_normalize", "ii", true, moduleNormalize},
		{"host_module_load", "ii", true, moduleLoad},
		{"host_call", "iiiii", true, hostCall},
	} {
		var results []api.ValueType
		if f.result {
			results = []api.ValueType{api.ValueTypeI32}
		}
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			v := ctx.Value(vmKey{}).(*vm)
			args := append([]uint64(nil), stack...) // nested calls reuse the stack
			v.depth++
			defer func() {
				v.depth--
				if p := recover(); p != nil {
					if h, ok := p.(halt); ok {
						panic(h.err) // the runtime returns it as the error of the call
					}
					panic(p)
				}
			}()
			result := f.do(v, args)
			if f.result {
				stack[0] = uint64(uint32(result))
			}
		}), valueTypes(f.params), results).Export(f.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// promiseRejection reports that a promise was rejected without a handler, or has got a handler.
// Both values are owned by the callee.
func promiseRejection(v *vm, args []uint64) uint64 {
	promise, reason, handled := args[0], args[1], uint32(args[2]) != 0
	key := v.call("qjs_get_value_ptr", promise)
	old, known := v.rejections[key]
	if known {
		delete(v.rejections, key)
		v.drop(old.promise)
		v.drop(old.reason)
	}
	if handled {
		v.drop(promise)
		v.drop(reason)
		return 0
	}
	v.rejections[key] = rejection{promise, reason}
	v.order = append(v.order, key)
	return 0
}

// cString reads a NUL-terminated text.
func (v *vm) cString(p uint64) string {
	var b strings.Builder
	for at := uint32(p); ; at++ {
		c, ok := v.mem.ReadByte(at)
		if !ok || c == 0 {
			return b.String()
		}
		b.WriteByte(c)
	}
}

// moduleNormalize returns the name of an imported module.
func moduleNormalize(v *vm, args []uint64) uint64 {
	base, name := v.newText(v.cString(args[0])), v.newText(v.cString(args[1]))
	defer v.drop(base)
	defer v.drop(name)
	result := v.invoke(v.normalizeImport, base, name)
	defer v.drop(result)
	if v.isException(result) {
		return 0
	}
	p, _ := v.bytes([]byte(v.text(result)))
	return p
}

// moduleLoad returns the text of a module.
func moduleLoad(v *vm, args []uint64) uint64 {
	name := v.newText(v.cString(args[0]))
	defer v.drop(name)
	result := v.invoke(v.importText, name)
	defer v.drop(result)
	if v.isException(result) {
		return 0
	}
	p, n := v.bytes([]byte(v.text(result)))
	v.mem.WriteUint32Le(uint32(args[1]), uint32(n))
	return p
}

// arguments are those of a call of the host function after the first, the name of the request.
type arguments struct {
	v    *vm
	list []value
}

func (a arguments) text(i int) string {
	if i >= len(a.list) {
		return ""
	}
	return a.v.text(a.list[i])
}

func (a arguments) int(i int) int64 {
	if i >= len(a.list) {
		return 0
	}
	n := a.v.number(a.list[i])
	if math.IsNaN(n) {
		return 0
	}
	return int64(max(min(n, math.MaxInt64/2), math.MinInt64/2))
}

// data returns the bytes of a text or array. They are valid until the next call of a function of
// the module.
func (a arguments) data(i int) []byte {
	if i >= len(a.list) {
		return nil
	}
	if a.v.isString(a.list[i]) {
		return []byte(cleanText(a.v.text(a.list[i])))
	}
	b, _ := a.v.array(a.list[i])
	return b
}

// cleanText converts QuickJS's encoding of a string to UTF-8: unpaired surrogates become U+FFFD.
func cleanText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 && len(s) >= 3 && s[0] == 0xED { // a surrogate, as three bytes
			n = 3
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// hostCall is the host function: host(name, …). The result is a new value, or 0 if an exception is
// pending.
func hostCall(v *vm, args []uint64) uint64 {
	argc, argv := uint32(args[3]), uint32(args[4])
	list := make([]value, argc)
	for i := range list {
		p, _ := v.mem.ReadUint32Le(argv + uint32(4*i))
		list[i] = uint64(p)
	}
	if argc == 0 {
		return v.undefined()
	}
	do := hostFunctions[v.text(list[0])]
	if do == nil {
		return v.undefined()
	}
	v.m.used += 1 << 10
	return do(arguments{v, list[1:]})
}

// hostFunctions are the prelude's requests. They return an error number as a negative number.
var hostFunctions = map[string]func(a arguments) value{
	"tables": hostTables, "info": hostInfo, "exit": hostExit, "eval": hostEval, "import": hostImport,
	"now":    func(a arguments) value { return a.v.newNumber(float64(a.v.m.since())) },
	"cpu":    func(a arguments) value { return a.v.newNumber(float64(cpuTime() - a.v.m.cpu)) },
	"memory": func(a arguments) value { return a.v.newNumber(float64(a.v.mem.Size())) },
	"random": hostRandom, "hash": hostHash,
	"encode": func(a arguments) value { return a.v.newBytes([]byte(cleanText(a.text(0)))) },
	"decode": func(a arguments) value { return a.v.newText(decodeText(a.data(0))) },
	"isUtf8": func(a arguments) value { return a.bool(utf8.Valid(a.data(0))) },
	"proxy":  hostProxy,
	"promiseState": func(a arguments) value {
		return a.v.newNumber(float64(int32(a.v.call("qjs_promise_state", a.list[0]))))
	},
	"promiseResult": func(a arguments) value { return a.v.call("qjs_promise_result", a.list[0]) },

	"open": func(a arguments) value {
		return a.handle(&call.Request{Op: call.Open, Path: a.text(0), Flags: nodeFlags(a.int(1)), Mode: uint32(a.int(2))})
	},
	"close": func(a arguments) value { return a.done(&call.Request{Op: call.Close, Handle: uint32(a.int(0))}) },
	"read":  hostRead, "write": hostWrite,
	"stat": func(a arguments) value {
		return a.info(&call.Request{Op: call.Stat, Path: a.text(0), Flags: noFollow(a.int(1))})
	},
	"fstat":   func(a arguments) value { return a.info(&call.Request{Op: call.Fstat, Handle: uint32(a.int(0))}) },
	"readdir": hostReadDir,
	"mkdir": func(a arguments) value {
		return a.done(&call.Request{Op: call.Mkdir, Path: a.text(0), Mode: uint32(a.int(1))})
	},
	"rmdir":  func(a arguments) value { return a.done(&call.Request{Op: call.Rmdir, Path: a.text(0)}) },
	"unlink": func(a arguments) value { return a.done(&call.Request{Op: call.Unlink, Path: a.text(0)}) },
	"chmod": func(a arguments) value {
		return a.done(&call.Request{Op: call.Chmod, Path: a.text(0), Mode: uint32(a.int(1))})
	},
	"rename": func(a arguments) value {
		return a.done(&call.Request{Op: call.Rename, Path: a.text(0), To: a.text(1)})
	},
	"link": func(a arguments) value {
		return a.done(&call.Request{Op: call.Link, Path: a.text(0), To: a.text(1)})
	},
	"symlink": func(a arguments) value {
		return a.done(&call.Request{Op: call.Symlink, Path: a.text(0), To: a.text(1)})
	},
	"readlink": func(a arguments) value { return a.path(&call.Request{Op: call.Readlink, Path: a.text(0)}) },
	"realpath": func(a arguments) value { return a.path(&call.Request{Op: call.Realpath, Path: a.text(0)}) },
	"utimes": func(a arguments) value {
		return a.done(&call.Request{Op: call.Utimens, Path: a.text(0), Offset: a.int(1), Size: a.int(2), Flags: noFollow(a.int(3))})
	},
	"futimes": func(a arguments) value {
		return a.done(&call.Request{Op: call.Futimens, Handle: uint32(a.int(0)), Offset: a.int(1), Size: a.int(2)})
	},
	"truncate": func(a arguments) value {
		return a.done(&call.Request{Op: call.Truncate, Handle: uint32(a.int(0)), Size: a.int(1)})
	},
	"spawn": hostSpawn,
}

func (a arguments) bool(b bool) value {
	if b {
		return a.v.call("qjs_get_true")
	}
	return a.v.call("qjs_get_false")
}

// failed returns the value of an error number.
func (a arguments) failed(e call.Errno) value { return a.v.newNumber(-float64(e)) }

func (a arguments) done(q *call.Request) value { return a.failed(a.v.m.call(q).Errno) }

func (a arguments) handle(q *call.Request) value {
	r := a.v.m.call(q)
	if r.Errno != 0 {
		return a.failed(r.Errno)
	}
	return a.v.newNumber(float64(r.Handle))
}

// info returns the fields of a file's description, separated by spaces.
func (a arguments) info(q *call.Request) value {
	r := a.v.m.call(q)
	if r.Errno != 0 {
		return a.failed(r.Errno)
	}
	s := r.Stat
	var b []byte
	for _, n := range []int64{int64(s.Type), int64(s.Mode), s.Size, s.ATime, s.MTime, s.CTime, int64(s.Links), int64(s.Inode)} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	return a.v.newText(string(b[:len(b)-1]))
}

func (a arguments) path(q *call.Request) value {
	r := a.v.m.call(q)
	if r.Errno != 0 {
		return a.failed(r.Errno)
	}
	return a.v.newText(string(r.Data))
}

func noFollow(on int64) uint32 {
	if on != 0 {
		return call.FlagNoFollow
	}
	return 0
}

// nodeFlags converts the flags of Node.js, which are Linux's, to those of Open.
func nodeFlags(f int64) uint32 {
	flags := [4]uint32{call.FlagRead, call.FlagWrite, call.FlagRead | call.FlagWrite, call.FlagRead}[f&3]
	for _, m := range [...]struct {
		theirs int64
		ours   uint32
	}{{0o100, call.FlagCreate}, {0o200, call.FlagExclusive}, {0o1000, call.FlagTruncate}, {0o2000, call.FlagAppend},
		{0o200000, call.FlagDirectory}, {0o400000, call.FlagNoFollow}} {
		if f&m.theirs != 0 {
			flags |= m.ours
		}
	}
	return flags
}

// hostInfo returns facts about the program and its environment.
func hostInfo(a arguments) value {
	m := a.v.m
	env := map[string]string{}
	for _, kv := range m.run.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	b, err := json.Marshal(map[string]any{"args": m.run.Args, "env": env, "cwd": m.run.Dir, "memory": m.run.Memory})
	if err != nil {
		panic(err) // not possible for strings and numbers
	}
	return a.v.newText(string(b))
}

// hostTables returns the tables that are the same for all programs.
func hostTables(a arguments) value {
	table := call.NewErrnos()
	errors, numbers, codes := map[call.Errno][2]string{}, map[string]uint32{}, map[string]call.Errno{}
	for _, e := range table.All() {
		name := table.Name(e)
		errors[e] = [2]string{name, table.Text(e)}
		numbers[name], codes[name] = table.Number(e), e
	}
	b, err := json.Marshal(map[string]any{"errors": errors, "numbers": numbers, "codes": codes, "version": a.v.cString(a.v.call("qjs_get_quickjs_version"))})
	if err != nil {
		panic(err) // not possible for strings and numbers
	}
	return a.v.newText(string(b))
}

// hostExit ends the program.
func hostExit(a arguments) value {
	panic(halt{sys.NewExitError(uint32(a.int(0)) & 0xff)})
}

func hostEval(a arguments) value {
	result := a.v.eval(a.text(0), a.text(1), uint64(a.int(2)))
	if a.v.isException(result) {
		return 0 // an exception is pending
	}
	return result
}

// hostImport runs a file as an ECMAScript module.
func hostImport(a arguments) value {
	text := a.v.invoke(a.v.importText, a.list[0])
	if a.v.isException(text) {
		return 0
	}
	defer a.v.drop(text)
	result := a.v.eval(a.v.text(text), a.text(0), 1)
	if a.v.isException(result) {
		return 0
	}
	return result
}

// maxRandom bounds one request for random bytes.
const maxRandom = 1 << 24

func hostRandom(a arguments) value {
	b := make([]byte, max(0, min(a.int(0), maxRandom)))
	a.v.m.used += len(b)
	rand.Read(b) // never fails
	return a.v.newBytes(b)
}

func hostHash(a arguments) value {
	name, data := a.text(0), a.data(1)
	var sum []byte
	switch strings.ReplaceAll(name, "-", "") {
	case "md5":
		s := md5.Sum(data)
		sum = s[:]
	case "sha1":
		s := sha1.Sum(data)
		sum = s[:]
	case "sha224":
		s := sha256.Sum224(data)
		sum = s[:]
	case "sha256":
		s := sha256.Sum256(data)
		sum = s[:]
	case "sha384":
		s := sha512.Sum384(data)
		sum = s[:]
	case "sha512":
		s := sha512.Sum512(data)
		sum = s[:]
	default:
		return a.failed(call.ENOTSUP)
	}
	return a.v.newBytes(sum)
}

// decodeText converts bytes to text: invalid UTF-8 becomes U+FFFD, one for each maximal subpart.
func decodeText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = partial(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// partial returns the length of the maximal subpart at the start of b (Unicode, "substitution of
// maximal subparts").
func partial(b []byte) int {
	lo, hi, size := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		size = 2
	case c >= 0xE0 && c <= 0xEF:
		size = 3
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		size = 4
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	}
	n := 1
	for n < size-1 && n < len(b) && b[n] >= lo && b[n] <= hi {
		n++
		lo, hi = 0x80, 0xBF
	}
	return n
}

// hostProxy returns the target of a proxy, undefined for any other value.
func hostProxy(a arguments) value {
	if a.v.call("qjs_is_proxy", a.list[0]) == 0 {
		return a.v.undefined()
	}
	target := a.v.call("qjs_get_proxy_target", a.list[0])
	if a.v.isException(target) {
		return 0
	}
	return target
}

// hostRead reads from a handle: a length and an offset, or -1.
func hostRead(a arguments) value {
	q := call.Request{Op: call.Read, Handle: uint32(a.int(0)), Size: min(a.int(1), call.MaxData)}
	if at := a.int(2); at >= 0 {
		q.Op, q.Offset = call.ReadAt, at
	}
	r := a.v.m.call(&q)
	if r.Errno != 0 {
		return a.failed(r.Errno)
	}
	return a.v.newBytes(r.Data)
}

// hostWrite writes all of a text or array to a handle.
func hostWrite(a arguments) value {
	data := a.data(1)
	q := call.Request{Op: call.Write, Handle: uint32(a.int(0))}
	if at := a.int(2); len(a.list) > 2 && at >= 0 {
		q.Op, q.Offset = call.WriteAt, at
	}
	total := 0
	for len(data) > 0 {
		q.Data = data[:min(len(data), call.MaxData)]
		r := a.v.m.call(&q)
		if r.Errno != 0 {
			return a.failed(r.Errno)
		}
		n := min(int(r.Size), len(data))
		if n <= 0 {
			return a.failed(call.EIO)
		}
		data, total, q.Offset = data[n:], total+n, q.Offset+int64(n)
	}
	return a.v.newNumber(float64(total))
}

// hostReadDir returns the entries of a directory, [name, type], as JSON.
func hostReadDir(a arguments) value {
	m := a.v.m
	r := m.call(&call.Request{Op: call.Open, Path: a.text(0), Flags: call.FlagRead | call.FlagDirectory})
	if r.Errno != 0 {
		return a.failed(r.Errno)
	}
	q := call.Request{Op: call.ReadDir, Handle: r.Handle}
	defer m.call(&call.Request{Op: call.Close, Handle: r.Handle})
	list := [][2]any{}
	for {
		r := m.call(&q)
		if r.Errno != 0 {
			return a.failed(r.Errno)
		}
		entries, err := call.DecodeEntries(r.Data, nil)
		if err != nil {
			return a.failed(call.EIO)
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			list = append(list, [2]any{e.Name, e.Type})
			m.used += len(e.Name) + 64
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return a.failed(call.EIO)
	}
	return a.v.newText(string(b))
}

// hostSpawn runs another program of the sandbox, given as JSON and its input. The answer is that of
// the device (device.go).
func hostSpawn(a arguments) value {
	var cmd call.Command
	if json.Unmarshal([]byte(a.text(0)), &cmd) != nil {
		return a.failed(call.EINVAL)
	}
	cmd.Input = append([]byte(nil), a.data(1)...)
	b, errno := a.v.m.spawn(cmd.Append(nil))
	if errno != 0 {
		return a.failed(errno)
	}
	return a.v.newBytes(b)
}

// sleep sleeps for milliseconds. If the program must end before, the process is killed.
func sleep(ms float64) {
	if ms > 0 {
		time.Sleep(time.Duration(min(ms, 1e9) * float64(time.Millisecond)))
	}
}
