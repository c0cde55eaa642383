package control

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandbar-dev/sandbar"
)

// query returns the parameters of a request. Invalid: one is not among known, or is given twice and
// is not among repeated.
func query(r *http.Request, known []string, repeated ...string) (url.Values, error) {
	q := r.URL.Query()
	for name, values := range q {
		again := slices.Contains(repeated, name)
		if !again && (!slices.Contains(known, name) || len(values) > 1) {
			return nil, invalid(name, "query parameter "+sandbar.Quote(name, 40)+" is not known or given twice", knownAre(slices.Concat(known, repeated)))
		}
	}
	return q, nil
}

// knownAre names the parameters of a request.
func knownAre(names []string) string {
	last := len(names) - 1
	switch last {
	case -1:
		return "this request has no parameters"
	case 0:
		return "known is " + names[0]
	}
	return "known are " + strings.Join(names[:last], ", ") + " and " + names[last]
}

// pathOf returns the parameter path. Default: the home directory.
func pathOf(q url.Values) string {
	if q.Has("path") {
		return q.Get("path")
	}
	return "."
}
