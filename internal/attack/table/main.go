// Command table writes what "sandbar escape-suite --json" found, one report a
// driver, as a table into a document:
//
//	table SECURITY.md native.json docker.json …
//
// The table stands between two marks and replaces what stood there.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/attack"
)

// The marks between which the table stands.
const (
	begin = "<!-- escape-suite: written by `make security` -->\n"
	end   = "<!-- end of escape-suite -->\n"
)

// report is what is read of a driver's.
type report struct {
	Version string          `json:"version"`
	Driver  string          `json:"driver"`
	Kernel  string          `json:"kernel"`
	Cases   []attack.Report `json:"cases"`
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
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		reports = append(reports, r)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	out, err := replace(string(text), render(attack.Cases(), reports))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(document, []byte(out), 0o644)
}

// replace puts text between the marks of a document.
func replace(document, text string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the marks %q and %q are not there", begin, end)
	}
	return before + begin + text + end + after, nil
}

// signs are what verdicts look like in the table.
var signs = map[attack.Verdict]string{attack.Contained: "✓", attack.Escaped: "**✗**", attack.NotClaimed: "–", attack.NotRun: "·", attack.Inconclusive: "?"}

// render makes the table: a row for each case, a column for each driver.
func render(cases []attack.Case, reports []report) string {
	var b strings.Builder
	b.WriteString("\n| attack | what is attempted |")
	for _, r := range reports {
		fmt.Fprintf(&b, " %s |", r.Driver)
	}
	b.WriteString("\n|---|---|" + strings.Repeat(":-:|", len(reports)) + "\n")
	for _, c := range cases {
		fmt.Fprintf(&b, "| `%s` | %s |", c.ID, c.Title)
		for _, r := range reports {
			fmt.Fprintf(&b, " %s |", sign(r, c.ID))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return b.String()
}

func sign(r report, id string) string {
	for _, c := range r.Cases {
		if c.ID == id {
			return signs[c.Verdict]
		}
	}
	return "·"
}
