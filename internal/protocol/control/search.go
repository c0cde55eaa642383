package control

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/wire"
)

const (
	// maxList is the most sandboxes in one response, if the request has a limit.
	maxList = 1000
	// maxLabelFilters bounds the filters by label of one request.
	maxLabelFilters = 64
)

// labelFilter is one filter by label: the sandbox has the label and, with hasValue, that value.
type labelFilter struct {
	key, value string
	hasValue   bool
}

// search is the query of GET /sandboxes. A zero field is no condition.
type search struct {
	labels              []labelFilter
	state, driver, name string
	limit               int
	after               cursor
}

// cursor is the position of a sandbox in the list. It stays valid after the sandbox's end.
type cursor struct {
	created time.Time
	id      sandbar.ID
}

// compare is the order of the list: the oldest first; of the same age, by id.
func (c cursor) compare(d cursor) int {
	return cmp.Or(c.created.Compare(d.created), cmp.Compare(c.id, d.id))
}

// String encodes the cursor for wire.List.Next.
func (c cursor) String() string {
	return strconv.FormatInt(c.created.UnixNano(), 10) + "." + string(c.id)
}

func cursorOf(s wire.Sandbox) cursor { return cursor{s.Created, s.ID} }

func parseCursor(s string) (cursor, error) {
	at, id, _ := strings.Cut(s, ".")
	nanos, err := strconv.ParseInt(at, 10, 64)
	if _, bad := sandbar.ParseID(id); err != nil || bad != nil {
		return cursor{}, invalid("after", "after is "+sandbar.Quote(s, 60)+", which no page has", "send the member next of the page before")
	}
	return cursor{time.Unix(0, nanos), sandbar.ID(id)}, nil
}

// decodeSearch decodes the query of GET /sandboxes.
func decodeSearch(r *http.Request) (search, error) {
	q, err := query(r, []string{"state", "driver", "name", "limit", "after"}, "label")
	if err != nil {
		return search{}, err
	}
	for name, values := range q {
		if slices.Contains(values, "") {
			return search{}, invalid(name, name+" is empty", "leave the parameter out, or give it a value")
		}
	}
	f := search{state: q.Get("state"), driver: q.Get("driver"), name: q.Get("name")}
	if f.state != "" && f.state != wire.StateRunning && f.state != wire.StatePaused {
		return f, invalid("state", "state is "+sandbar.Quote(f.state, 40), "allowed: "+wire.StateRunning+" and "+wire.StatePaused)
	}
	if q.Has("limit") {
		if f.limit, err = strconv.Atoi(q.Get("limit")); err != nil || f.limit < 1 || f.limit > maxList {
			return f, invalid("limit", "limit is "+sandbar.Quote(q.Get("limit"), 40), "allowed: a whole number from 1 to "+strconv.Itoa(maxList))
		}
	}
	if q.Has("after") {
		if f.after, err = parseCursor(q.Get("after")); err != nil {
			return f, err
		}
	}
	f.labels, err = labelFilters(q)
	return f, err
}

func labelFilters(q url.Values) ([]labelFilter, error) {
	if n := len(q["label"]); n > maxLabelFilters {
		return nil, invalid("label", "label is given "+strconv.Itoa(n)+" times", "allowed: at most "+strconv.Itoa(maxLabelFilters)+" times")
	}
	var all []labelFilter
	for _, text := range q["label"] {
		key, value, ok := strings.Cut(text, "=")
		if key == "" {
			return nil, invalid("label", "label "+sandbar.Quote(text, 40)+" has no name", "allowed: label=NAME=VALUE, or label=NAME for any value")
		}
		all = append(all, labelFilter{key, value, ok})
	}
	return all, nil
}

// matches reports whether a sandbox meets all conditions.
func (f search) matches(s wire.Sandbox) bool {
	for _, l := range f.labels {
		if value, ok := s.Labels[l.key]; !ok || l.hasValue && value != l.value {
			return false
		}
	}
	return (f.state == "" || f.state == s.State) && (f.driver == "" || f.driver == s.Driver) && (f.name == "" || f.name == s.Name)
}

// page returns the sandboxes that meet the conditions, in the order of the list.
func (f search) page(all []wire.Sandbox) wire.List {
	found := wire.List{Sandboxes: []wire.Sandbox{}}
	slices.SortFunc(all, func(a, b wire.Sandbox) int { return cursorOf(a).compare(cursorOf(b)) })
	for _, s := range all {
		if !f.matches(s) || f.after != (cursor{}) && cursorOf(s).compare(f.after) <= 0 {
			continue
		}
		if n := len(found.Sandboxes); f.limit > 0 && n == f.limit {
			found.Next = cursorOf(found.Sandboxes[n-1]).String()
			break
		}
		found.Sandboxes = append(found.Sandboxes, s)
	}
	return found
}

// list serves GET /sandboxes.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	f, err := decodeSearch(r)
	if err != nil {
		fail(w, err)
		return
	}
	all := s.every()
	if s.options.Others != nil {
		others, err := s.others(r)
		if err != nil {
			fail(w, err)
			return
		}
		all = append(all, others...)
	}
	answer(w, http.StatusOK, f.page(all))
}

// others returns the sandboxes of other daemons that meet the request's conditions: of each at
// least as many as fit into the response.
func (s *Server) others(r *http.Request) (all []wire.Sandbox, err error) {
	_, bodies, err := s.options.Others(r)
	if err != nil {
		return nil, err
	}
	for _, b := range bodies {
		var list wire.List
		if err := json.Unmarshal(b, &list); err != nil {
			return nil, sandbar.Errorf(sandbar.Unavailable, "another daemon answers with a list that cannot be read: %w", err)
		}
		all = append(all, list.Sandboxes...)
	}
	return all, nil
}

// every describes all live and paused sandboxes, in no order.
func (s *Server) every() []wire.Sandbox {
	found := map[sandbar.ID]wire.Sandbox{}
	paused := func() {
		for _, p := range s.engine.Paused() {
			found[p.ID] = s.describePaused(p)
		}
	}
	// A sandbox that is paused or resumed meanwhile is in one of the three lists at least.
	paused()
	for _, info := range s.engine.List() {
		o := origin{}
		if e := s.known(info.ID); e != nil {
			o = e.kept()
		}
		found[info.ID] = o.describe(info, s.options.IdleTimeout)
	}
	paused()
	all := make([]wire.Sandbox, 0, len(found))
	for _, d := range found {
		all = append(all, d)
	}
	return all
}
