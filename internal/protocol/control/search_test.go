package control

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

// search returns the names of the sandboxes of a page, and its Next.
func (r *rig) search(query string) (names []string, next string) {
	r.t.Helper()
	status, text := r.ask(token, "GET", "/v1/sandboxes?"+query, "")
	var l wire.List
	if err := json.Unmarshal([]byte(text), &l); status != 200 || err != nil {
		r.t.Fatalf("%s: %d %s (%v)", query, status, text, err)
	}
	for _, s := range l.Sandboxes {
		names = append(names, s.Name)
	}
	return names, l.Next
}

// TestSearch tests each condition, and that all conditions of a request must be met.
func TestSearch(t *testing.T) {
	r := newStates(t)
	r.create(`{"name":"a","labels":{"owner":"me","tier":"1"}}`)
	r.create(`{"name":"b","labels":{"owner":"you","note":"x=y"}}`)
	paused := r.create(`{"name":"c","labels":{"owner":"me","empty":""}}`)
	r.create(`{}`)
	if status, text := r.ask(token, "POST", "/v1/sandboxes/"+string(paused.ID)+"/pause", ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	for query, want := range map[string][]string{
		"":                               {"a", "b", "c", ""},
		"label=owner%3Dme":               {"a", "c"},
		"label=owner":                    {"a", "b", "c"},
		"label=owner&label=tier%3D1":     {"a"},
		"label=owner%3D":                 nil,
		"label=empty%3D":                 {"c"},
		"label=note%3Dx%3Dy":             {"b"},
		"label=OWNER":                    nil,
		"state=paused":                   {"c"},
		"state=running":                  {"a", "b", ""},
		"state=paused&label=tier":        nil,
		"name=b":                         {"b"},
		"driver=faulty&name=c":           {"c"},
		"driver=other":                   nil,
		"label=owner%3Dme&state=running": {"a"},
	} {
		if got, next := r.search(query); !slices.Equal(got, want) || next != "" {
			t.Errorf("%s: %q, next %q, want %q", query, got, next, want)
		}
	}
}

// TestSearchPages tests that pages have each sandbox once, in the order of the list, also if
// sandboxes end and begin between the pages.
func TestSearchPages(t *testing.T) {
	r := newRig(t, Options{}, nil)
	var ids []sandbar.ID
	for i := range 7 {
		ids = append(ids, r.create(fmt.Sprintf(`{"name":"s%d","labels":{"n":"%d"}}`, i, i%2)).ID)
	}
	first, next := r.search("limit=3")
	if err := r.engine.Stop(t.Context(), ids[2]); err != nil { // the one that next names
		t.Fatal(err)
	}
	second, end := r.search("limit=3&after=" + url.QueryEscape(next))
	r.create(`{"name":"late"}`)
	third, last := r.search("limit=3&after=" + url.QueryEscape(end))
	if got := strings.Join(slices.Concat(first, second, third), " "); got != "s0 s1 s2 s3 s4 s5 s6 late" || next == "" || end == "" || last != "" {
		t.Errorf("%s; next %q, %q, %q", got, next, end, last)
	}
	if got, next := r.search("limit=3&label=n%3D1"); strings.Join(got, " ") != "s1 s3 s5" || next != "" {
		t.Errorf("a full page that is the last: %q, next %q", got, next)
	}
}

// TestBadSearch tests that a condition that is malformed is refused, with the field.
func TestBadSearch(t *testing.T) {
	r := newRig(t, Options{}, nil)
	for query, field := range map[string]string{
		"label=": "label", "label=%3Dx": "label", "state=dead": "state", "state=": "state", "state=running&state=paused": "state", "limit=0": "limit",
		"limit=1001": "limit", "limit=x": "limit", "after=x": "after", "after=1.x": "after", "labels=a": "labels",
		"driver=": "driver", "name=a&name=b": "name", strings.Repeat("label=a&", maxLabelFilters+1): "label",
	} {
		status, text := r.ask(token, "GET", "/v1/sandboxes?"+query, "")
		if e := errorOf(t, text); status != 400 || e.Code != sandbar.Invalid || e.Field != field || e.Fix == "" {
			t.Errorf("%.40s: %d %s", query, status, text)
		}
	}
}
