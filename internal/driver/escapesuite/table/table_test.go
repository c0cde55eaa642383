package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/driver/escapesuite"
)

// The document has a row for every case and a column for every user of the daemon, and no cell
// shows an escape from a driver that claims the boundary.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), begin)
	table, _, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("SECURITY.md has no table; run make security")
	}
	table, _, ok = strings.Cut(table, "\nWhy cases were not run:\n")
	if !ok {
		t.Fatal("the table has no notes; run make security")
	}
	var drivers []string
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) < 3 || strings.HasPrefix(cells[0], "-"):
		case drivers == nil:
			drivers = cells[2:]
		default:
			rows[strings.Trim(cells[0], "`")] = cells[2:]
		}
	}
	for _, r := range escapesuite.Roles() {
		if !slices.Contains(drivers, "native, "+string(r.As)) {
			t.Errorf("no column for the role %s; run make security", r)
		}
	}
	for _, c := range escapesuite.Cases() {
		row, ok := rows[c.ID]
		delete(rows, c.ID)
		if !ok {
			t.Errorf("no row for %s; run make security", c.ID)
			continue
		}
		for i, sign := range row {
			if strings.HasPrefix(sign, escaped) || strings.HasPrefix(sign, inconclusive) {
				t.Errorf("%s on driver %s: %s", c.ID, drivers[i], sign)
			}
		}
	}
	for id := range rows {
		t.Errorf("there is no case %s", id)
	}
}

func TestReplace(t *testing.T) {
	got, err := replace("a\n"+begin+"old\n"+end+"b\n", "new\n")
	if want := "a\n" + begin + "new\n" + end + "b\n"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := replace("a\n"+begin, "x"); err == nil {
		t.Error("a document without marks was changed")
	}
}

func TestRender(t *testing.T) {
	all := escapesuite.Cases()[:3]
	run := func(driver, role string, verdicts ...escapesuite.Report) report {
		for i := range verdicts {
			verdicts[i].ID = all[i].ID
		}
		return report{Driver: driver, Role: role, Cases: verdicts}
	}
	held, why := escapesuite.Report{Verdict: escapesuite.Contained, OK: true}, escapesuite.Report{Verdict: escapesuite.NotRun, OK: true, Evidence: "no\nPython"}
	out, leaks := escapesuite.Report{Verdict: escapesuite.Escaped}, escapesuite.Report{Verdict: escapesuite.Escaped, OK: true}
	got := render(all, []report{
		run("native", "root", held, held, held), run("native", "root-image-warm", held, why, out),
		{Driver: "native", Role: "user", NotRun: "only root can"},
		run("local", "root", leaks, escapesuite.Report{Verdict: escapesuite.NotClaimed, OK: true}, escapesuite.Report{Verdict: escapesuite.Inconclusive}),
	})
	for _, want := range []string{
		"| native, root | native, user | local |",
		"| `" + all[0].ID + "` | " + all[0].Title + " | ✓ | ·<sup>1</sup> | ✗ |\n",
		"| `" + all[1].ID + "` | " + all[1].Title + " | ✓<sup>2</sup> | ·<sup>1</sup> | – |\n",
		"| `" + all[2].ID + "` | " + all[2].Title + " | **ESCAPED** | ·<sup>1</sup> | ? |\n",
		"\n1. only root can\n2. no Python\n",
		"| native | root-image-warm | 1 | 0 | 0 | 1 | 0 | 1 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in it:\n%s", want, got)
		}
	}
}
