package function

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPage tests that docs/iii.md has every function with every field of its requests and
// responses, their defaults, and every error with its type.
func TestPage(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/iii.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, f := range schemas() {
		section := sectionOf(page, f.ID)
		if section == "" {
			t.Errorf("%s has no section", f.ID)
			continue
		}
		var request, response struct {
			Properties map[string]struct{ Default json.RawMessage }
		}
		if err := json.Unmarshal(f.Request, &request); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(f.Response, &response); err != nil {
			t.Fatal(err)
		}
		for name, field := range request.Properties {
			row := regexp.MustCompile("(?m)^\\|[^|\n]*`" + name + "`.*$").FindString(section)
			if row == "" {
				t.Errorf("%s: the request's field %s has no row", f.ID, name)
			}
			if d := string(field.Default); d != "" && d != "null" && !strings.Contains(row, d) {
				t.Errorf("%s: the default of %s is %s, and the page has %s", f.ID, name, d, row)
			}
		}
		for name := range response.Properties {
			if !strings.Contains(section, "`"+name+"`") && !strings.Contains(section, "`"+name+":") && !strings.Contains(section, "what `sandbox::exec` returns") {
				t.Errorf("%s: the answer's field %s is missing", f.ID, name)
			}
		}
	}
	for _, c := range Codes {
		retryable := map[bool]string{true: "yes", false: "no"}[c.properties().retryable]
		if row := "| [" + string(c) + "](iii-errors.md#" + string(c) + ") | " + c.properties().kind + " | " + retryable + " |"; !strings.Contains(page, row) {
			t.Errorf("there is no row %s", row)
		}
	}
}

// sectionOf returns the part of the page below the heading of a function.
func sectionOf(page, function string) string {
	for _, s := range strings.Split(page, "\n### ")[1:] {
		heading, text, _ := strings.Cut(s, "\n")
		for _, name := range strings.Split(heading, ", ") {
			if name == function {
				return text
			}
		}
	}
	return ""
}
