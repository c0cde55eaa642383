package policy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	peersFacts = "testdata/peers.txt"
	peersPage  = "../../../docs/system-calls.md"
)

// standing is the treatment of one call, here and by others: "yes", "some", "part" or "no".
type standing struct{ here, docker, offers, asks string }

// differs reports whether a call needs an explanation: its treatment differs from Docker's, or from
// that of gVisor's kernel for its programs; or its arguments are checked here; or gVisor's kernel
// needs it of its host and would not get it.
func (s standing) differs() bool {
	switch {
	case s.here != s.docker, s.here == "some":
		return true
	case (s.here == "no") != (s.offers == "no"):
		return true
	}
	return s.asks == "yes" && s.here != "yes"
}

// TestPeers compares the rules with Docker's profile and gVisor's: the page explains every
// difference exactly once, with the right words, and explains nothing else.
func TestPeers(t *testing.T) {
	facts := peers(t)
	page, err := os.ReadFile(peersPage)
	if err != nil {
		t.Fatal(err)
	}
	counted, uncounted, ok := strings.Cut(string(page), "\nWhere nothing counts ")
	if !ok {
		t.Fatalf("%s does not tell the two sets of rules apart", peersPage)
	}
	all := standings(facts, Rules())
	explained(t, "counted", rows(t, counted), all)
	less := standings(facts, UncountedRules())
	for name, s := range all {
		if less[name] == s { // explained above, or equal
			delete(less, name)
		}
	}
	explained(t, "uncounted", rows(t, uncounted), less)
	for _, line := range totals(all) {
		if !strings.Contains(counted, line+"\n") {
			t.Errorf("%s does not say: %s", peersPage, line)
		}
	}
}

// explained compares the rows of the page with the differences.
func explained(t *testing.T, set string, page map[string]standing, calls map[string]standing) {
	t.Helper()
	for name, s := range calls {
		said, ok := page[name]
		switch {
		case s.differs() && !ok:
			t.Errorf("%s: nothing explains %s: %+v", set, name, s)
		case ok && !s.differs():
			t.Errorf("%s: %s is explained and no different: %+v", set, name, s)
		case ok && said != s:
			t.Errorf("%s: %s is said to be %+v and is %+v", set, name, said, s)
		}
	}
	for name := range page {
		if _, ok := calls[name]; !ok {
			t.Errorf("%s: %s is no call, or the same as above", set, name)
		}
	}
}

// peers reads the treatment of every call of numbers by the others.
func peers(t *testing.T) map[string]standing {
	t.Helper()
	b, err := os.ReadFile(peersFacts)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]standing{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") || f[0] == "call" {
			continue
		}
		if len(f) != 4 || !slices.Contains([]string{"yes", "some", "no"}, f[1]) || !slices.Contains([]string{"yes", "part", "no"}, f[2]) || !slices.Contains([]string{"yes", "no"}, f[3]) {
			t.Fatalf("%s: %q", peersFacts, line)
		}
		out[f[0]] = standing{docker: f[1], offers: f[2], asks: f[3]}
	}
	for _, n := range numbers() {
		if _, ok := out[n.name]; !ok {
			t.Errorf("%s has no line for %s", peersFacts, n.name)
		}
	}
	if len(out) != len(numbers()) {
		t.Errorf("%s has %d calls; the filter knows %d", peersFacts, len(out), len(numbers()))
	}
	return out
}

// standings adds the treatment by our rules to that by others.
func standings(facts map[string]standing, rules []Rule) map[string]standing {
	out := map[string]standing{}
	for name, s := range facts {
		mine := forCall(rules, name)
		refused := slices.IndexFunc(mine, func(r Rule) bool { return r.Action != Allow }) >= 0
		allowed := slices.IndexFunc(mine, func(r Rule) bool { return r.Action == Allow }) >= 0
		switch {
		case !allowed:
			s.here = "no"
		case refused:
			s.here = "some"
		default:
			s.here = "yes"
		}
		out[name] = s
	}
	return out
}

// rows reads the table of a section of the page.
func rows(t *testing.T, text string) map[string]standing {
	t.Helper()
	out := map[string]standing{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(f) != 6 {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if len(strings.Fields(f[5])) < 2 {
			t.Errorf("%s gives no reason for %s", peersPage, f[0])
		}
		for name := range strings.SplitSeq(f[0], ", ") {
			name = strings.Trim(name, "`")
			if _, ok := out[name]; ok {
				t.Errorf("%s explains %s twice", peersPage, name)
			}
			out[name] = standing{here: f[1], docker: f[2], offers: f[3], asks: f[4]}
		}
	}
	return out
}

// totals returns the lines of the page with totals.
func totals(all map[string]standing) []string {
	var here, docker, offers, asks int
	for _, s := range all {
		for n, v := range map[*int]string{&here: s.here, &docker: s.docker, &offers: s.offers, &asks: s.asks} {
			if v != "no" {
				*n++
			}
		}
	}
	return []string{
		fmt.Sprintf("| known to the filter | %d |", len(all)),
		fmt.Sprintf("| allowed here, with some arguments or any | %d |", here),
		fmt.Sprintf("| allowed by Docker | %d |", docker),
		fmt.Sprintf("| implemented by gVisor | %d |", offers),
		fmt.Sprintf("| needed by gVisor from its host | %d |", asks),
	}
}
