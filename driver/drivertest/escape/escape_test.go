package escape

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

func TestCasesAreWellFormed(t *testing.T) {
	id := regexp.MustCompile(`^(\d\d)-[a-z0-9-]+$`)
	seen, last := map[string]bool{}, ""
	for _, c := range Cases() {
		m := id.FindStringSubmatch(c.ID)
		if m == nil {
			t.Errorf("case %q: the id is not a number and a name", c.ID)
			continue
		}
		if seen[c.ID] {
			t.Errorf("case %s is there twice", c.ID)
		}
		seen[c.ID] = true
		if m[1] < last {
			t.Errorf("case %s is out of order", c.ID)
		}
		last = m[1]
		ways := 0
		for _, there := range []bool{c.Python != "", c.Shell != "", c.Attack != nil} {
			if there {
				ways++
			}
		}
		if ways != 1 || c.Title == "" || c.Claim == "" {
			t.Errorf("case %s needs a title, a claim and exactly one of Python, Shell and Attack", c.ID)
		}
		if c.Leaks && c.Claim == Always {
			t.Errorf("case %s: what is always claimed cannot be seen to leak", c.ID)
		}
		if c.Python != "" && !strings.Contains(c.Python, "done()") || c.Shell != "" && !strings.Contains(c.Shell, "DONE") {
			t.Errorf("case %s never says DONE", c.ID)
		}
	}
}

// The numbers of the catalogue that concern a single sandbox. The test fails if a case is removed.
func TestCatalogueIsCovered(t *testing.T) {
	want := []string{"01", "02", "03", "04", "05", "06", "07", "08", "11", "12", "14", "15", "16", "17",
		"19", "20", "21", "22", "25", "26", "27", "28", "29", "30", "31", "32", "33", "34", "35", "36", "42",
		"43", "44", "46", "49", "50", "51", "56", "57", "58", "59", "60", "61", "62", "63", "65", "66",
		"89", "90", "91", "94", "96", "97", "98"}
	var got []string
	for _, c := range Cases() {
		if n := c.ID[:2]; !slices.Contains(got, n) {
			got = append(got, n)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("numbers covered:\n%v\nwant:\n%v", got, want)
	}
}

// A program with a syntax error would not attack.
func TestProgramsCompile(t *testing.T) {
	testenv.Need(t, testenv.Python)
	for _, c := range Cases() {
		if c.Python == "" {
			continue
		}
		cmd := exec.Command("/usr/bin/python3", "-c", "import sys; compile(sys.stdin.read(), 'case', 'exec')")
		cmd.Stdin = strings.NewReader(prelude + c.Python)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("case %s: %v\n%s", c.ID, err, out)
		}
	}
}

func TestReportOK(t *testing.T) {
	for _, tc := range []struct {
		claimed bool
		verdict Verdict
		ok      bool
	}{
		{true, Contained, true},
		{true, Escaped, false},
		{true, Inconclusive, false},
		{false, Contained, false}, // not claimed, so it must succeed
		{false, Escaped, true},
		{false, Inconclusive, false},
		{false, NotClaimed, true},
		{true, NotRun, true},
	} {
		if got := (Report{Claimed: tc.claimed, Verdict: tc.verdict}).OK(); got != tc.ok {
			t.Errorf("claimed %v, %s: OK is %v", tc.claimed, tc.verdict, got)
		}
	}
}

func TestClaims(t *testing.T) {
	none := sandbar.EnforcedNone
	bare := driver.Caps{Boundary: driver.BoundaryNone, Enforced: enforced(none)}
	by := sandbar.EnforcedRlimit
	full := driver.Caps{Boundary: driver.BoundaryNamespaces, PrivateFiles: true, PrivateNetwork: true, PrivateProcesses: true, PrivateQuotas: true,
		Enforced: enforced(by)}
	for _, c := range []Claim{Files, Network, Processes, Quotas, Kernel, Rights, Memory, CPUs, PIDs, Disk, Inodes, Descriptors} {
		if c.Claimed(bare) || !c.Claimed(full) {
			t.Errorf("%s: claimed by a driver that claims nothing: %v, by one that claims all: %v", c, c.Claimed(bare), c.Claimed(full))
		}
	}
	machine := driver.Caps{Boundary: driver.BoundaryVM}
	if !Kernel.Claimed(machine) || Rights.Claimed(machine) {
		t.Error("a machine must protect the host's kernel, and may give its programs rights over its own")
	}
	if !Always.Claimed(bare) {
		t.Error("what is always claimed depends on the driver")
	}
}

// Damage to the bait must be detected, because otherwise a case could not fail.
func TestBaitTellsDamage(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	for name, shell := range map[string]string{
		"nothing":           `:`,
		"read":              `cat "$BAIT_FILE"`,
		"file changed":      `echo x > "$BAIT_FILE"`,
		"file removed":      `rm "$BAIT_FILE"`,
		"file's mode":       `chmod 600 "$BAIT_FILE"`,
		"directory's mode":  `chmod 700 "$BAIT_DIR"`,
		"directory removed": `rm -r "$BAIT_DIR"`,
		"file planted":      `echo x > "$BAIT_DIR/planted"`,
		"process killed":    `kill "$BAIT_PID"; while kill -0 "$BAIT_PID" 2>/dev/null; do sleep 0.01; done; sleep 0.1`,
	} {
		t.Run(name, func(t *testing.T) {
			b, err := newBait()
			if err != nil {
				t.Fatal(err)
			}
			defer b.close()
			cmd := exec.Command("sh", "-c", shell)
			for k, v := range b.env() {
				cmd.Env = append(cmd.Env, k+"="+v)
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if strings.Contains(strings.Join(cmd.Env, "\n"), b.Secret) {
				t.Error("the secret is in the program's environment")
			}
			if harmless := name == "nothing" || name == "read"; (len(b.damage()) == 0) != harmless {
				t.Errorf("damage: %q", b.damage())
			}
		})
	}
}

// The verdict depends on certain lines of a program's output, whatever else is in it.
func TestListen(t *testing.T) {
	for text, escapes := range map[string]int{
		"DONE\n":                    0,
		"held: ESCAPED\nDONE\n":     0,
		"ESCAPED one\nDONE\n":       1,
		"x\nESCAPED one\nESCAPED\n": 2,
		"it is SECRET, is it\n":     1,
	} {
		s := &Scene{Bait: &Bait{Secret: "secret-1"}}
		s.listen(strings.ReplaceAll(text, "SECRET", "secret-1"), sandbar.Result{})
		if len(s.escapes) != escapes {
			t.Errorf("%q: %q", text, s.escapes)
		}
	}
}

func TestRunSaysWhatIsMissing(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	nothing := capsOnly{driver.Caps{Boundary: driver.BoundaryNone}}
	full := capsOnly{driver.Caps{Boundary: driver.BoundaryVM, PrivateFiles: true}}
	for name, tc := range map[string]struct {
		target Target
		c      Case
		want   Verdict
	}{
		"not claimed, cannot leak": {Target{Driver: nothing}, Case{Claim: Kernel, Shell: "x"}, NotClaimed},
		"no Python":                {Target{Driver: full}, Case{Claim: Kernel, Python: "x"}, NotRun},
		"no sandbox to be had":     {Target{Driver: full}, Case{Claim: Files, Shell: "x"}, Inconclusive},
	} {
		r := Run(context.Background(), tc.target, tc.c)
		if r.Verdict != tc.want || r.Verdict != NotClaimed && r.Evidence == "" {
			t.Errorf("%s: %s", name, r)
		}
	}
}

// capsOnly is a driver that makes no sandboxes.
type capsOnly struct{ caps driver.Caps }

func (d capsOnly) Caps() driver.Caps { return d.caps }
func (d capsOnly) Create(context.Context, sandbar.ID, sandbar.Spec) (driver.Sandbox, error) {
	return nil, sandbar.Errorf(sandbar.Unavailable, "no sandbox today")
}

// enforced is Enforcements with the same mechanism for all limits.
func enforced(by sandbar.Enforcement) sandbar.Enforcements {
	return sandbar.Enforcements{Memory: by, CPUs: by, CPUShares: by, PIDs: by, Disk: by, Inodes: by, Files: by}
}

// The case about the host's secrets finds them if nothing is hidden: it distinguishes the host's
// files from those of an image.
func TestHostSecretsAreKnown(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Python)
	i := slices.IndexFunc(Cases(), func(c Case) bool { return c.ID == "15-host-secrets" })
	run := func(secrets string) string {
		cmd := exec.Command("python3", "-c", prelude+Cases()[i].Python)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOST_SECRETS=" + secrets}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run(hostSecrets()); !strings.Contains(out, "ESCAPED") || !strings.Contains(out, "DONE") {
		t.Errorf("on the host itself it says:\n%s", out)
	}
	if out := run("/usr=1:/var/lib=1"); strings.Contains(out, "ESCAPED") || !strings.Contains(out, "DONE") {
		t.Errorf("of others' directories it says:\n%s", out)
	}
}
