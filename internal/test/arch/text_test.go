package arch

import (
	"bytes"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The words are split so that this file does not contain them.
var forbiddenWords = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`/(wo` + `rk|fa` + `rm)/`), "a path of somebody's machine"},
	{regexp.MustCompile(`(?i)\b(proxy|sum)\.gol` + `ang\.org|regis` + `try\.npmjs|\bpy` + `pi\.org|python` + `hosted\.org|\bdeb\.deb` + `ian\.org`), "the host of a package registry: tools must use their configured registry"},
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`), "a mark of unfinished work: finish it, or write an issue"},
	{regexp.MustCompile(`\bspe` + `cs/[\w-]+\.md`), "a file that is not in the repository: cite docs/protocols.md"},
	{regexp.MustCompile(`(?i)\b(clau` + `de|chat` + `gpt|anthro` + `pic|co` + `pilot)\b`), unrelated},
}

const unrelated = "the name of an unrelated product"

func TestForbiddenWords(t *testing.T) {
	for name, text := range load(t).files {
		for _, w := range forbiddenWords {
			if name == "docs/mcp.md" && w.why == unrelated {
				continue // agents that use the tools are not unrelated
			}
			for _, m := range w.pattern.FindAllString(string(text), -1) {
				t.Errorf("%s: %q is %s", name, m, w.why)
			}
		}
	}
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code    = regexp.MustCompile("`([^`\n]+)`")
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	place   = regexp.MustCompile(`^(bench|cmd|driver|engine|internal|scripts|\.ci)(/[\w.-]+)+$`)
	notRun  = regexp.MustCompile(`(?m)^<!-- not run: .*-->$`)
	proof   = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)[A-Z]\w*`)
)

func TestLinksOfDocuments(t *testing.T) {
	all := load(t)
	for name, text := range all.files {
		if path.Ext(name) != ".md" {
			continue
		}
		prose := fence.ReplaceAllString(string(text), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if why := brokenLink(all, name, m[1]); why != "" {
				t.Errorf("%s: link %s: %s", name, m[1], why)
			}
		}
	}
}

// brokenLink returns what is wrong with a link in a document, "" for a valid link. It does not
// check links to other hosts.
func brokenLink(all *tree, from, to string) string {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(to, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(from), file)
	}
	text, isFile := all.files[target]
	if !isFile && !all.dirs[target] && !all.binary[target] {
		return "there is no " + target
	}
	if anchor != "" && !anchors(string(text))[anchor] {
		return target + " has no such heading"
	}
	return ""
}

// anchors returns the link targets of a document's headings.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}

// named matches an HTML anchor, for stable links.
var named = regexp.MustCompile(`<a id="([^"]+)"></a>`)

// Files, directories, tests and benchmarks that a document names must exist, also in the reason why
// an example is not run.
func TestDocumentsNameWhatExists(t *testing.T) {
	all := load(t)
	functions := map[string]bool{}
	for _, s := range all.sources {
		if s.test || strings.HasPrefix(s.pkg, "bench") || strings.HasPrefix(s.pkg, "driver/drivertest") {
			for _, name := range functionNames(s) {
				functions[name] = true
			}
		}
	}
	for name, text := range all.files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, mark := range notRun.FindAll(text, -1) {
			for word := range strings.FieldsFuncSeq(string(mark), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
				if proof.MatchString(word) && !functions[word] {
					t.Errorf("%s: there is no %s", name, word)
				}
			}
		}
		for _, m := range code.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			if p := m[1]; place.MatchString(p) && path.Base(p) != "NAME" && all.files[p] == nil && !all.dirs[p] && !made[p] {
				t.Errorf("%s: there is no %s", name, p)
			}
			if f := proof.FindString(m[1]); f != "" && f == strings.SplitN(m[1], "/", 2)[0] && !functions[f] {
				t.Errorf("%s: there is no %s", name, f)
			}
		}
	}
}

var (
	citation = regexp.MustCompile(`docs/protocols\.md, (\w+)(?:: "([^"]+)")?`)
	comment  = regexp.MustCompile(`\n\s*//\s?`)
	// A document, or a source below a directory, that a comment names.
	cited = regexp.MustCompile(`(?:^|[^\w/.@:-])((?:[\w.-]+/)*[\w-]+\.md|(?:[\w.-]+/)+[\w-]+\.(?:go|sh))\b`)
)

// A file that a comment names must exist: below the module's root or beside the source.
func TestCommentsNameFilesThatExist(t *testing.T) {
	all := load(t)
	for _, s := range all.sources {
		for _, group := range s.ast.Comments {
			for _, m := range cited.FindAllStringSubmatch(group.Text(), -1) {
				if all.files[m[1]] == nil && all.files[path.Join(path.Dir(s.path), m[1])] == nil {
					t.Errorf("%s: there is no %s", all.position(group), m[1])
				}
			}
		}
	}
}

// maxWidth is the width of comments and of Markdown outside of tables and code blocks, in
// characters. A line with one word, such as a link, may be longer.
const maxWidth = 100

func TestWidth(t *testing.T) {
	all := load(t)
	for _, s := range all.sources {
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				first := all.fset.Position(c.Pos())
				if line := strings.TrimSpace(lineAt(all.files[s.path], first.Offset)); line != c.Text {
					continue // behind code
				}
				if w := first.Column - 1 + utf8.RuneCountInString(c.Text); w > maxWidth && strings.Count(c.Text, " ") > 1 && !strings.HasPrefix(c.Text, "//go:") {
					t.Errorf("%s: a comment of %d columns, more than %d", first, w, maxWidth)
				}
			}
		}
	}
	for name, text := range all.files {
		if path.Ext(name) != ".md" {
			continue
		}
		fenced := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			if w := utf8.RuneCountInString(line); w > maxWidth && !fenced && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "<!--") && strings.Contains(strings.TrimLeft(line, "- "), " ") {
				t.Errorf("%s:%d: a line of %d columns, more than %d", name, i+1, w, maxWidth)
			}
		}
	}
}

// lineAt returns the line of text that contains an offset.
func lineAt(text []byte, offset int) string {
	start := bytes.LastIndexByte(text[:offset], '\n') + 1
	line, _, _ := strings.Cut(string(text[start:]), "\n")
	return line
}

// Comments cite protocol texts through docs/protocols.md, which has a heading for each text and a
// line for each of its sections.
func TestCitations(t *testing.T) {
	all := load(t)
	sections := sectionsOf(string(all.files["docs/protocols.md"]))
	if len(sections) == 0 {
		t.Fatal("docs/protocols.md has no sections")
	}
	for _, s := range all.sources {
		text := comment.ReplaceAllString(string(all.files[s.path]), " ")
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			if found := sections[m[1]]; s.path != "internal/test/arch/text_test.go" && (found == nil || m[2] != "" && !found[m[2]]) {
				t.Errorf("%s: %s: no such text or section in docs/protocols.md", s.path, m[0])
			}
		}
	}
}

// sectionsOf returns the list items below each heading of a document.
func sectionsOf(text string) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	var of map[string]bool
	for _, line := range strings.Split(text, "\n") {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			of = map[string]bool{}
			found[h] = of
		} else if item, ok := strings.CutPrefix(line, "- "); ok && of != nil {
			of[item] = true
		}
	}
	return found
}

func TestBrokenLink(t *testing.T) {
	all := &tree{
		files: map[string][]byte{"A.md": []byte("# A heading, with `code`\n"), "sub/B.md": []byte("## Why?\n")},
		dirs:  map[string]bool{"sub": true},
	}
	for to, ok := range map[string]bool{
		"https://example.org/x":       true,
		"B.md":                        true,
		"../A.md":                     true,
		"../A.md#a-heading-with-code": true,
		"#why":                        true,
		"../sub":                      true,
		"A.md":                        false,
		"#whynot":                     false,
		"../A.md#b":                   false,
	} {
		if why := brokenLink(all, "sub/B.md", to); (why == "") != ok {
			t.Errorf("%s: %q, want no fault = %v", to, why, ok)
		}
	}
}
