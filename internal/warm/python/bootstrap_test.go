package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// importPackage imports and hides a package that adds a module with another name to sys.modules, as
// compiled packages do.
const importPackage = `
import sys
exec(compile(open(sys.argv[1]).read(), 'bootstrap', 'exec'))
sys.path.insert(0, sys.argv[2])
base = BaseModules()
recorder = Recorder()
with recorder:
    import outer
first = outer
assert '_shared' in recorder.placed, recorder.placed
hidden = HiddenModules(base, recorder, ['outer'])
hook_imports(hidden)
del outer, first
OURS = {'outer', 'outer.core', 'outer.again', '_shared'}
assert not OURS & set(sys.modules)
assert hidden.records['outer'].imports.count('outer.core') == 1, hidden.records['outer'].imports
import outer
print(outer.runs, outer.core.runs, outer.again.core is outer.core, sys.modules['_shared'] is outer.core.shared, not OURS & set(hidden.modules), hidden.dropped)
`

// A hidden module that the program imports appears without its code running again, also if the code
// has added a module to sys.modules under a name that no finder knows.
func TestHiddenModulesAppear(t *testing.T) {
	testenv.Need(t, testenv.Python)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bootstrap":         string(source(modules()[:len(modules())-1])), // without start
		"test.py":           importPackage,
		"outer/__init__.py": "import sys\nruns = getattr(sys, 'outer_runs', 0) + 1\nsys.outer_runs = runs\nfrom . import core\nfrom . import core, again\n",
		"outer/core.py": "import sys, types, importlib.machinery\nruns = 1\nshared = types.ModuleType('_shared')\n" +
			"shared.__spec__ = importlib.machinery.ModuleSpec('outer._shared', None, origin=__file__)\nshared.__spec__.has_location = True\nsys.modules['_shared'] = shared\n",
		"outer/again.py": "from outer import core\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("python3", filepath.Join(dir, "test.py"), filepath.Join(dir, "bootstrap"), dir).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "1 1 True True True []" {
		t.Errorf("%s, %v", out, err)
	}
}

// Each embedded file is part of the program.
func TestAllModulesAreLoaded(t *testing.T) {
	files, err := bootstrap.ReadDir("bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(modules(), strings.TrimSuffix(f.Name(), ".py")) {
			t.Errorf("%s is not listed", f.Name())
		}
	}
}
