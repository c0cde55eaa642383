package e2e

import (
	"bufio"
	"fmt"
	"image/png"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// withPackages shows a directory in /usr/local to the program of the other arguments.
const withPackages = `set -eu
mount -t overlay -o "lowerdir=$1:/usr/local" overlay /usr/local
shift
exec "$@"
`

// The programs of examples/e2b upload a CSV file, plot it by pandas, keep the session, and serve a
// page that a browser shows.
func TestE2BExamples(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Root, testenv.UserNS, testenv.PyWheels, testenv.Python, testenv.NpmE2B, testenv.PyE2B, testenv.Chromium)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	local := t.TempDir()
	if err := os.Chmod(filepath.Dir(local), 0o755); err != nil { // programs of sandboxes read it as other users
		t.Fatal(err)
	}
	version, err := exec.CommandContext(within(t, time.Minute), "/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatal(err)
	}
	unpackWheels(t, filepath.Join(local, "lib", "python"+strings.TrimSpace(string(version)), "dist-packages"))
	d := startDaemonBy(t, []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", withPackages, "sh", local}, t.TempDir(), "SANDBAR_E2B=true")
	d.await(t)
	tab := newBrowser(t)
	for _, args := range [][]string{{"/usr/bin/python3", "sales.py"}, {"/usr/bin/node", "sales.mjs"}} {
		t.Run(args[1], func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{args[1], "sales.csv"} {
				copyFile(t, filepath.Join(root, "examples", "e2b", name), filepath.Join(dir, name), 0o644)
			}
			if err := os.Symlink(testenv.NpmE2BModules(), filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			runE2BExample(t, d, dir, args, func(address string) {
				d.awaitPage(t, address)
				visit(t, tab, address)
				becomes(t, tab, "return [...document.querySelectorAll('tr')].map((r) => r.innerText.trim().split(/\\s+/).join(' ')).join('; ')",
					"month sales; 0 January 3; 1 February 5; 2 March 4")
			})
			f, err := os.Open(filepath.Join(dir, "sales.png"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if i, err := png.Decode(f); err != nil || i.Bounds().Dx() < 100 {
				t.Errorf("the plot: %v", err)
			}
		})
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon ended with %v; it said:\n%s", err, d.said())
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// awaitPage waits until the program behind an address of the daemon answers.
func (d *daemon) awaitPage(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(browserPatience); ; time.Sleep(50 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.addr+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = u.Host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", address, resp.Status)
		}
	}
}

// unpackWheels unpacks all wheels into a directory, and compiles the modules that the examples
// import: an installation compiles all of them, which takes minutes.
func unpackWheels(t *testing.T, dir string) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(within(t, 5*time.Minute), "/usr/bin/python3", args...)
		cmd.Env = append(environ(), "PYTHONPATH="+dir, "MPLCONFIGDIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("python3 %q: %v: %s", args, err, out)
		}
	}
	for _, wheel := range glob(t, filepath.Join(testenv.WheelsDir(), "*.whl")) {
		run("-m", "zipfile", "-e", wheel, dir)
	}
	run("-c", "import pandas, matplotlib.pyplot; pandas.DataFrame({'a': [1]}).plot.bar()")
}

// runE2BExample runs a program of examples/e2b until it prints the address of its page, calls see,
// and lets it end.
func runE2BExample(t *testing.T, d *daemon, dir string, args []string, see func(address string)) {
	t.Helper()
	cmd := exec.CommandContext(within(t, 5*time.Minute), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(environ(), "PYTHONPATH="+testenv.PyE2BPath(), "E2B_API_URL=http://"+d.addr, "E2B_SANDBOX_URL=http://"+d.addr, "E2B_API_KEY="+token,
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "NO_PROXY=*")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	total, err := out.ReadString('\n')
	if err != nil || total != "total: 12\n" {
		t.Errorf("it printed %q, %v", total, err)
	}
	var address string
	if _, err := fmt.Fscanf(out, "open %s and press Enter to end", &address); err != nil {
		t.Errorf("it printed no address: %v", err)
	} else {
		see(address)
	}
	fmt.Fprintln(stdin)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
