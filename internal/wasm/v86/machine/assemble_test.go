package machine

import (
	"context"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// answer is a module like those that the emulator generates: it imports a function, which it calls,
// and a memory, and exports one function.
func answer() []byte {
	imports := append(appendName(appendName([]byte{2}, "env"), "add"), kindFunction, 1)
	imports = append(appendName(appendName(imports, "memory"), "m"), kindMemory, 0, 1)
	out := []byte(magic)
	out = appendSection(out, sectionType, []byte{2, typeFunction, 0, 1, 0x7f, typeFunction, 1, 0x7f, 0})
	out = appendSection(out, sectionImport, imports)
	out = appendSection(out, 3, []byte{1, 1})
	out = appendSection(out, sectionExport, append(appendName([]byte{1}, "f"), kindFunction, 1))
	return appendSection(out, 10, []byte{1, 6, 0, 0x20, 0, 0x10, 0, opEnd}) // f(x) = add(x)
}

// caller is a module with a memory that calls through a table of another module.
func caller() []byte {
	out := []byte(magic)
	out = appendSection(out, sectionType, []byte{2, typeFunction, 1, 0x7f, 0, typeFunction, 2, 0x7f, 0x7f, 0})
	imports := append(appendName(appendName([]byte{1}, "env"), "table"), kindTable, typeFuncref, 0, 8)
	out = appendSection(out, sectionImport, imports)
	out = appendSection(out, 3, []byte{1, 1})
	exports := append(append(appendName([]byte{2}, "call"), kindFunction, 0), append(appendName(nil, "memory"), kindMemory, 0)...)
	memory := []byte{1, 0, 1}
	out = appendSection(out, 5, memory)
	out = appendSection(out, sectionExport, exports)
	return appendSection(out, 10, []byte{1, 9, 0, 0x20, 1, 0x20, 0, 0x11, 0, 0, opEnd}) // call(slot, x) = table[slot](x)
}

// Generated modules can be called through the table, and can call re-exported functions.
func TestPlaceAndRelay(t *testing.T) {
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	i32 := []api.ValueType{api.ValueTypeI32}
	var sum uint32
	_, err := rt.NewHostModuleBuilder("host").NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(_ context.Context, st []uint64) { sum += uint32(st[0]) }), i32, nil).Export("add").Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	add := []function{{"add", i32, nil}}
	instantiate := func(name string, module []byte) api.Module {
		t.Helper()
		m, err := rt.InstantiateWithConfig(ctx, module, named(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return m
	}
	env := relay{from: "host", functions: add, table: 8, tableName: "table"}
	instantiate("env", env.bytes())
	core := instantiate("core", caller())
	memory := relay{from: "core", memory: "memory", memoryAs: "m"}
	instantiate("memory", memory.bytes())
	for slot, x := range map[uint32]uint64{0: 3, 7: 40} {
		module, err := withElement(answer(), "env", "table", slot)
		if err != nil {
			t.Fatal(err)
		}
		instantiate("", module)
		before := sum
		if _, err := core.ExportedFunction("call").Call(ctx, uint64(slot), x); err != nil || uint64(sum-before) != x {
			t.Errorf("slot %d: sum grew by %d, %v", slot, sum-before, err)
		}
	}
}

func TestPlaceRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		module []byte
		want   string
	}{
		"nothing":          {nil, "not a WebAssembly module"},
		"another version":  {[]byte("\x00asm\x02\x00\x00\x00"), "not a WebAssembly module"},
		"no exports":       {[]byte(magic), "exports nothing"},
		"a section cut":    {append([]byte(magic), sectionType, 9, 1), "not a WebAssembly module"},
		"a table":          {appendSection([]byte(magic), sectionTable, []byte{0}), "a table of its own"},
		"elements":         {appendSection([]byte(magic), sectionElement, []byte{0}), "a table of its own"},
		"two exports":      {appendSection([]byte(magic), sectionExport, []byte{2, 1, 'f', 0, 0, 1, 'g', 0, 0}), "does not export one function"},
		"a memory's name":  {appendSection([]byte(magic), sectionExport, []byte{1, 1, 'f', kindMemory, 0}), "not a WebAssembly module"},
		"a name cut":       {appendSection([]byte(magic), sectionExport, []byte{1, 200, 1, 'f'}), "not a WebAssembly module"},
		"no imports' size": {appendSection([]byte(magic), sectionImport, nil), "not a WebAssembly module"},
	} {
		if _, err := withElement(tc.module, "env", "table", 0); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func FuzzPlace(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(appendSection([]byte(magic), sectionExport, []byte{1, 1, 'f', 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := withElement(b, "env", "table", 3); err == nil && len(out) <= len(b) {
			t.Error("nothing was added")
		}
	})
}
