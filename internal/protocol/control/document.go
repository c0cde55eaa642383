package control

import (
	_ "embed"
	"net/http"
)

// openapi is the description of the API (OpenAPI 3.1). Tests compare it with the code, and
// docs/api.md with it.
//
//go:embed openapi.json
var openapi []byte

// serveDocument serves the description of the API.
func serveDocument(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(w, r, "GET, HEAD")
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Write(openapi)
}
