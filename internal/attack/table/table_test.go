package main

import (
	"os"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/attack"
)

// The document has a row for every case there is, and no driver with a boundary
// has let one out.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), begin)
	table, _, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("SECURITY.md has no table; run make security")
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
	for _, c := range attack.Cases() {
		row, ok := rows[c.ID]
		delete(rows, c.ID)
		if !ok {
			t.Errorf("no row for %s; run make security", c.ID)
			continue
		}
		for i, sign := range row {
			if drivers[i] != "local" && (sign == signs[attack.Escaped] || sign == signs[attack.Inconclusive]) {
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
	all := attack.Cases()[:2]
	got := render(all, []report{{Driver: "native", Cases: []attack.Report{{ID: all[0].ID, Verdict: attack.Contained}}},
		{Driver: "local", Cases: []attack.Report{{ID: all[0].ID, Verdict: attack.Escaped}, {ID: all[1].ID, Verdict: attack.NotClaimed}}}})
	want := "| `" + all[0].ID + "` | " + all[0].Title + " | ✓ | **✗** |\n| `" + all[1].ID + "` | " + all[1].Title + " | · | – |\n"
	if !strings.Contains(got, want) {
		t.Errorf("%s, want in it\n%s", got, want)
	}
}
