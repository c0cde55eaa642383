// Command table writes what "sandbar escape-suite --json" found as tables into a document:
//
//	table SECURITY.md native.json docker.json …
//
// A file has one report or several, one for each role. The first table has a row for each case, a
// column for each user that the native driver's daemon was, and one for each other driver. A cell
// sums up the runs on the host's programs and on an image, cold and warm. The second table has a
// row for each run. The tables replace the text between two marker comments of the document.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/driver/escapesuite"
)

// The marks between which the table stands.
const (
	begin = "<!-- escape-suite: written by `make security` -->\n"
	end   = "<!-- end of escape-suite -->\n"
)

// report is what is read of one run.
type report struct {
	Role   string               `json:"role"`
	NotRun string               `json:"not_run"`
	Driver string               `json:"driver"`
	Cases  []escapesuite.Report `json:"cases"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: table DOCUMENT REPORT…")
		os.Exit(2)
	}
	if err := update(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func update(document string, files []string) error {
	var reports []report
	for _, f := range files {
		read, err := readReports(f)
		if err != nil {
			return err
		}
		reports = append(reports, read...)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	out, err := replace(string(text), render(escapesuite.Cases(), reports))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(document, []byte(out), 0o644)
}

// readReports reads all reports of a file.
func readReports(name string) ([]report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []report
	for in := json.NewDecoder(f); ; {
		var r report
		switch err := in.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, r)
	}
}

// replace puts text between the marks of a document.
func replace(document, text string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the marker comments %q and %q are missing", begin, end)
	}
	return before + begin + text + end + after, nil
}

// The signs of the table, the worst first. leak is an attack that succeeds where the
// driver claims nothing.
const (
	escaped      = "**ESCAPED**"
	inconclusive = "?"
	leak         = "✗"
	contained    = "✓"
	notClaimed   = "–"
	notRun       = "·"
)

func signs() []string {
	return []string{escaped, inconclusive, leak, contained, notClaimed, notRun}
}

func sign(r escapesuite.Report) string {
	switch r.Verdict {
	case escapesuite.Escaped:
		if r.OK {
			return leak
		}
		return escaped
	case escapesuite.Contained:
		return contained
	case escapesuite.NotClaimed:
		return notClaimed
	case escapesuite.NotRun:
		return notRun
	}
	return inconclusive
}

// column is the runs that one column sums up.
type column struct {
	name string
	runs []report
}

// columns puts runs together: those of the native driver by the daemon's user, those
// of each other driver.
func columns(reports []report) []column {
	var all []column
	for _, r := range reports {
		name := r.Driver
		if roles, err := escapesuite.ParseRoles(r.Role); err == nil && (r.Driver == "native" || r.Driver == "auto") {
			name = "native, " + string(roles[0].As)
		}
		i := slices.IndexFunc(all, func(c column) bool { return c.name == name })
		if i < 0 {
			i = len(all)
			all = append(all, column{name: name})
		}
		all[i].runs = append(all[i].runs, r)
	}
	return all
}

// notes are the reasons why something was not run, numbered.
type notes []string

// number returns the number of a reason, from 1.
func (n *notes) number(why string) int {
	why = strings.Join(strings.Fields(why), " ")
	i := slices.Index(*n, why)
	if i < 0 {
		i = len(*n)
		*n = append(*n, why)
	}
	return i + 1
}

// cell sums up what came of a case: the worst sign of all runs, and why some did not run it.
func (c column) cell(id string, n *notes) string {
	worst, why := len(signs())-1, []int{}
	for _, run := range c.runs {
		reason := run.NotRun
		for _, r := range run.Cases {
			if r.ID == id {
				worst = min(worst, slices.Index(signs(), sign(r)))
				if r.Verdict == escapesuite.NotRun {
					reason = r.Evidence
				}
			}
		}
		if reason != "" && !slices.Contains(why, n.number(reason)) {
			why = append(why, n.number(reason))
		}
	}
	text := signs()[worst]
	if len(why) > 0 {
		slices.Sort(why)
		text += "<sup>" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(why)), ","), "[]") + "</sup>"
	}
	return text
}

// render makes the tables and the notes.
func render(cases []escapesuite.Case, reports []report) string {
	all := columns(reports)
	var b strings.Builder
	var why notes
	b.WriteString("\n| attack | what is attempted |")
	for _, c := range all {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat(":-:|", len(all)) + "\n")
	for _, c := range cases {
		fmt.Fprintf(&b, "| `%s` | %s |", c.ID, c.Title)
		for _, col := range all {
			fmt.Fprintf(&b, " %s |", col.cell(c.ID, &why))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWhy cases were not run:\n\n")
	for i, reason := range why {
		fmt.Fprintf(&b, "%d. %s\n", i+1, reason)
	}
	b.WriteString("\nThe runs, and how many cases ended how:\n\n| driver | role | " + strings.Join(signs(), " | ") + " |\n|---|---|" + strings.Repeat("--:|", len(signs())) + "\n")
	for _, r := range reports {
		fmt.Fprintf(&b, "| %s | %s |", r.Driver, r.Role)
		for _, s := range signs() {
			n := 0
			for _, c := range r.Cases {
				if sign(c) == s {
					n++
				}
			}
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return b.String()
}
