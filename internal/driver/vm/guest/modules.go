package guest

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// wanted are the kernel's parts that the machine uses, in load order. A part can be built in.
var wanted = [...]struct {
	name     string
	required bool
}{
	{"virtio_pci", true},
	{"virtio_console", true}, // the agent's connection
	{"virtio_blk", true},     // the root's lower layer
	{"erofs", true},
	{"overlay", true},
	{"vmgenid", false}, // reseeds the kernel's random numbers in each clone
	{"tun", false},     // outbound network
}

// maxModule bounds an uncompressed module, in bytes.
const maxModule = 64 << 20

// moduleTree is a directory of a kernel's modules, /lib/modules/RELEASE.
type moduleTree struct {
	// files returns the paths of all files.
	files []string
	// read returns a file's content.
	read func(name string) ([]byte, error)
}

// module is an uncompressed kernel module.
type module struct {
	file    string // NAME.ko
	content []byte
}

// selectModules returns the wanted modules and those that they depend on, in load order.
func selectModules(t moduleTree) ([]module, error) {
	builtin, err := t.builtin()
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for _, file := range t.files {
		if name := moduleName(file); name != "" {
			byName[name] = file
		}
	}
	l := loader{tree: t, builtin: builtin, byName: byName, state: map[string]int{}}
	var missing []string
	for _, w := range wanted {
		if !builtin[w.name] && byName[w.name] == "" {
			if w.required {
				missing = append(missing, w.name)
			}
			continue
		}
		if err := l.add(w.name); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		return nil, errors.New("the kernel has no " + strings.Join(missing, ", ") + ", neither built in nor as a module")
	}
	return l.order, nil
}

// builtin returns the names of the modules that are built in (modules.builtin).
func (t moduleTree) builtin() (map[string]bool, error) {
	names := map[string]bool{}
	for _, file := range t.files {
		if path.Base(file) != "modules.builtin" {
			continue
		}
		b, err := t.read(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			if name := moduleName(strings.TrimSpace(line)); name != "" {
				names[name] = true
			}
		}
	}
	return names, nil
}

// moduleName returns the name of the module in a file, "" if the file is none. The kernel treats
// '-' and '_' in names alike.
func moduleName(file string) string {
	name, _, ok := strings.Cut(path.Base(file), ".ko")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}

// loader orders modules by their dependencies.
type loader struct {
	tree    moduleTree
	builtin map[string]bool
	byName  map[string]string
	state   map[string]int // 1: being added, 2: added
	order   []module
}

func (l *loader) add(name string) error {
	switch {
	case l.builtin[name] || l.state[name] == 2:
		return nil
	case l.state[name] == 1:
		return errors.New("the dependencies of module " + name + " form a circle")
	case l.byName[name] == "":
		return errors.New("module " + name + " is missing")
	}
	l.state[name] = 1
	b, err := l.tree.read(l.byName[name])
	if err != nil {
		return err
	}
	if b, err = unpackModule(l.byName[name], b); err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	needs, err := dependencies(b)
	if err != nil {
		return fmt.Errorf("module %s: %w", name, err)
	}
	for _, n := range needs {
		if err := l.add(n); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	l.state[name] = 2
	l.order = append(l.order, module{file: name + ".ko", content: b})
	return nil
}

// unpackModule uncompresses a module.
func unpackModule(file string, b []byte) ([]byte, error) {
	var r io.Reader
	var err error
	switch in := bytes.NewReader(b); path.Ext(file) {
	case ".ko":
		return b, nil
	case ".xz":
		r, err = xz.NewReader(in)
	case ".gz":
		r, err = gzip.NewReader(in)
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
			r = z
		}
	default:
		return nil, errors.New("an unknown compression: " + path.Base(file))
	}
	if err != nil {
		return nil, err
	}
	return readAll(r, maxModule)
}

// dependencies returns the names in a module's field "depends".
func dependencies(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("not a kernel module: it has no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	var names []string
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok {
			for name := range strings.SplitSeq(list, ",") {
				name = strings.ReplaceAll(name, "-", "_")
				if name != "" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names, nil
}
