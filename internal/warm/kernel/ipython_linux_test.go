package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// differs begins the line of a cell whose result is another in IPython, with the reason.
const differs = "# differs: "

// incidental are parts of outputs that do not count: the names of cells as files, addresses, and
// the kinds of results that IPython does not have.
var incidental = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\((<[^>]*>|\S+\.py), line `), "(cell, line "},
	{regexp.MustCompile(`(?m)^(2:)?\S.*?:(\d+): (\w+Warning): `), "${1}cell:$2: $3: "},
	{regexp.MustCompile(`\b0x[0-9a-f]{6,}`), "0x"},
	{regexp.MustCompile(` \+(data|chart)`), ""},
}

func essential(text string) string {
	for _, i := range incidental {
		text = i.pattern.ReplaceAllString(text, i.text)
	}
	return text
}

// The cells of testdata/notebook.txt and testdata/cells.txt show the same in IPython, as text and
// as kinds of results, and leave the same variables. A cell that differs has the reason, in a
// comment that begins with "# differs: "; it must differ.
func TestIPython(t *testing.T) {
	testenv.Need(t, testenv.Once, testenv.PyWheels, testenv.PyIPython)
	packages := unpackWheels(t)
	figures := t.TempDir()
	for _, file := range []string{"testdata/notebook.txt", "testdata/cells.txt"} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var cells []string
			for _, c := range strings.Split(strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\n==="), "\n===\n") {
				code, _, _ := strings.Cut(c, "\n--->\n")
				cells = append(cells, code)
			}
			theirs := ipython(t, cells, "PYTHONPATH="+packages+":"+testenv.PyIPythonPath(), "MPLCONFIGDIR="+figures)
			s := open(t, "python", "/usr/bin/python3", "PYTHONPATH="+packages, "MPLCONFIGDIR="+figures)
			s.patience = 5 * time.Minute
			for i, code := range cells {
				var ours string
				if strings.HasPrefix(code, "# interrupted") {
					ours = s.interrupt(code)
				} else {
					ours = s.run(code)
				}
				ours, theirs := essential(ours), essential(theirs[i])
				reason := strings.Contains(code, differs)
				switch {
				case ours != theirs && !reason:
					t.Errorf("%s\n    ours %q\n IPython %q", code, ours, theirs)
				case ours == theirs && reason:
					t.Errorf("%s\nno longer differs: %q", code, ours)
				}
			}
		})
	}
}

// ipython runs cells in IPython and returns what they show.
func ipython(t *testing.T, cells []string, env ...string) (results []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	in, err := json.Marshal(cells)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("testdata/ipython.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-c", string(program))
	home := t.TempDir()
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "HOME="+home, "IPYTHONDIR="+home, "MPLBACKEND=Agg"), env...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &results); err != nil || len(results) != len(cells) {
		t.Fatalf("%d of %d results, %v: %s", len(results), len(cells), err, stderr.Bytes())
	}
	return results
}
