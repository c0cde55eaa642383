package native

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// needed is a common program, and its output if no system call or file that it needs is denied.
type needed struct {
	name   string
	need   []testenv.Requirement
	script string
	want   string
}

func neededPrograms() []needed {
	return []needed{
		{"gcc", []testenv.Requirement{testenv.CC}, `
cat >a.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *run(void *p) { *(int *)p = 42; return p; }
int main(void) { int n = 0; pthread_t t; pthread_create(&t, 0, run, &n); pthread_join(t, 0); printf("%d\n", n); return n != 42; }
END
gcc -O2 -pthread -o a a.c && ./a`, "42\n"},
		{"git", []testenv.Requirement{testenv.Git}, `
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=me GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=me@example.com
git init -q a && cd a && echo one >f && git add f && git commit -q -m first && cd .. && git clone -q a b && cd b && echo two >>f && git commit -q -a -m second && git log --format=%s && git gc -q && git fsck --strict`, "second\nfirst\n"},
		{"sqlite", []testenv.Requirement{testenv.SQLite}, `
sqlite3 db 'pragma journal_mode=wal; create table t (n); insert into t values (1), (2); select sum(n) from t;' && sqlite3 db 'pragma integrity_check'`, "wal\n3\nok\n"},
		{"node", []testenv.Requirement{testenv.Node}, `
echo 'exports.f = () => 7' >m.js
node -e 'const z = require("zlib"); console.log(require("./m.js").f(), z.gunzipSync(z.gzipSync("text")).toString()); new (require("worker_threads").Worker)("process.exit(0)", {eval: true}).on("exit", c => console.log(c))'`, "7 text\n0\n"},
		{"elixir", []testenv.Requirement{testenv.Elixir}, `
cat >a.exs <<'END'
defmodule A do
  def f(n), do: n * n
end
IO.inspect(Task.async_stream(1..3, &A.f/1) |> Enum.map(&elem(&1, 1)))
File.write!("f", "text")
IO.puts(elem(System.cmd("cat", ["f"]), 0))
END
elixir a.exs`, "[1, 4, 9]\ntext\n"},
		{"pip, numpy and pandas", []testenv.Requirement{testenv.PyWheels}, `
python3 "$(echo wheels/pip-*.whl)/pip" install --quiet --disable-pip-version-check --no-index --find-links wheels --no-compile --target site pandas
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=site python3 -c '
import numpy, pandas
a = numpy.arange(1_000_000, dtype=float).reshape(1000, 1000)
print(numpy.linalg.matrix_rank(a), (a @ a).shape, numpy.fft.fft(a[0]).shape)
d = pandas.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]})
d.to_csv("d.csv", index=False)
print(pandas.read_csv("d.csv").groupby("k").v.sum().to_dict())
'`, "2 (1000, 1000) (1000,)\n{'a': 4, 'b': 2}\n"},
	}
}

// Common programs run in a sandbox as on the host: no rule, mask or limit of the boundary prevents
// them.
func TestNeededPrograms(t *testing.T) {
	d := newDriver(t)
	for _, p := range neededPrograms() {
		t.Run(p.name, func(t *testing.T) {
			testenv.Need(t, p.need...)
			s := spec(d)
			s.AllowDegraded = true // an ordinary user has no control groups
			s.Limits.Memory, s.Limits.Disk, s.Limits.Inodes, s.Limits.PIDs, s.Limits.Files = 1<<30, 512<<20, 20_000, 256, 1024
			b, err := d.Create(t.Context(), sandbar.NewID(), s)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.Destroy(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			if strings.Contains(p.script, "wheels/") {
				upload(t, b, testenv.WheelsDir(), "wheels")
			}
			var out, errOut bytes.Buffer
			proc, err := b.Start(t.Context(), sandbar.Cmd{Args: []string{"/bin/sh", "-euc", p.script}, Dir: sandbar.DefaultDir,
				Env: map[string]string{"PATH": "/usr/bin:/bin", "HOME": sandbar.DefaultDir, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "4"}},
				driver.Stdio{Stdout: &out, Stderr: &errOut})
			if err != nil {
				t.Fatal(err)
			}
			r, err := proc.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != p.want || r.Outcome != sandbar.Exited || r.ExitCode != 0 {
				t.Errorf("%v, exit code %d, signal %d; it printed %q, want %q\n%s", r.Outcome, r.ExitCode, r.Signal, out.String(), p.want, errOut.String())
			}
		})
	}
}

// upload copies the wheels of a directory into a directory of the sandbox's home.
func upload(t *testing.T, b driver.Sandbox, from, to string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(from, "*.whl"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no wheels in %s (%v)", from, err)
	}
	for _, name := range names {
		if err := copyIn(b, name, sandbar.DefaultDir+"/"+to+"/"+filepath.Base(name)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func copyIn(b driver.Sandbox, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	w, err := b.FS().Create(context.Background(), to, sandbar.CreateOptions{Mode: 0o644, Parents: true})
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, in); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}
