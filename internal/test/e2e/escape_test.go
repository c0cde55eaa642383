package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// verdict is the escape suite's verdict on a case.
type verdict struct {
	ID, Claim, Verdict, Expected, Evidence string
	OK                                     bool
}

// suite runs the escape suite by its command and returns the verdicts.
func suite(t *testing.T, driver, only string) []verdict {
	t.Helper()
	cmd := exec.Command(testenv.Build(t, "cmd/sandbar"), "escape-suite", "--json", "--driver", driver, "--run", only)
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "SANDBAR_RUNTIME_DIR="+dir+"/run", "SANDBAR_STATE_DIR="+dir+"/state")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var report struct {
		OK    bool
		Cases []verdict
	}
	if jerr := json.Unmarshal(out, &report); jerr != nil {
		t.Fatalf("%v, %v: %s%s", err, jerr, out, errs.String())
	}
	if (err == nil) != report.OK {
		t.Errorf("exit code %v, and ok is %v", err, report.OK)
	}
	return report.Cases
}

// The attacks on a daemon are contained: malformed, forged and slow requests, vanishing clients,
// hostile preview pages, sparse files, and a killed daemon.
func TestEscapeSuiteDaemon(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.UserNS)
	seen := 0
	for _, only := range []string{"3[789]-*", "40-*", "5[23]-p*", "6[789]-[!f]*", "7*", "8[0-8]-*", "9[25]-*"} {
		for _, r := range suite(t, "native", only) {
			if r.Claim != "daemon" {
				continue
			}
			seen++
			if r.Verdict != "CONTAINED" && r.Verdict != "NOT RUN" {
				t.Errorf("%s: %s: %s", r.ID, r.Verdict, r.Evidence)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d cases about the daemon were run", seen)
	}
}

// With a driver that claims no boundary the attacks succeed, and the command reports that as
// expected.
func TestEscapeSuiteLocal(t *testing.T) {
	testenv.Need(t, testenv.Linux, testenv.Python)
	escaped := 0
	for _, r := range suite(t, "local", "4[349]-*") {
		if !r.OK {
			t.Errorf("%s: %s where %s was expected: %s", r.ID, r.Verdict, r.Expected, r.Evidence)
		}
		if r.Verdict == "ESCAPED" {
			escaped++
		}
	}
	if escaped == 0 {
		t.Error("no attack on a driver without a boundary was seen to succeed")
	}
}
