package httpd

import (
	"io"
	"net/http"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

// headerOverlay claims requests with the header Mine, and those with Key as keyed.
type headerOverlay struct{}

func (headerOverlay) Claims(r *http.Request) (key string, keyed, claimed bool) {
	key = r.Header.Get("Key")
	return key, key != "", key != "" || r.Header.Get("Mine") != ""
}

func (headerOverlay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "overlay "+engine.Client(r.Context()).Name)
}

func (headerOverlay) Refuse(w http.ResponseWriter, status int, err *sandbar.Error) {
	w.WriteHeader(status)
	io.WriteString(w, "refused "+string(err.Code))
}

// An overlay gets the requests that it claims after the checks of Host and Origin, a keyed one with
// a valid key only, and no other request.
func TestOverlay(t *testing.T) {
	s, err := Listen(Options{Listen: "127.0.0.1:0", Token: "daemon", Clients: map[string]string{"ci": "ci-token"}, Overlay: headerOverlay{},
		Routes: map[string]http.Handler{"/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "route") })}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	for _, tt := range []struct {
		headers map[string]string
		status  int
		text    string
	}{
		{map[string]string{"Authorization": "Bearer daemon"}, 200, "route"},
		{map[string]string{"Mine": "1"}, 200, "overlay "},
		{map[string]string{"Mine": "1", "Authorization": "Bearer ci-token"}, 200, "overlay "},
		{map[string]string{"Key": "daemon"}, 200, "overlay "},
		{map[string]string{"Key": "ci-token"}, 200, "overlay ci"},
		{map[string]string{"Key": "wrong"}, 401, "refused unauthenticated"},
		{map[string]string{"Key": "wrong", "Authorization": "Bearer daemon"}, 401, "refused unauthenticated"},
		{map[string]string{"Mine": "1", "Host": "evil.example"}, 421, "refused denied"},
		{map[string]string{"Key": "daemon", "Origin": "http://evil.example"}, 403, "refused denied"},
		{map[string]string{"Mine": "1", "Sec-Fetch-Site": "cross-site"}, 403, "refused denied"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range tt.headers {
			r.Header.Set(name, value)
		}
		r.Host = tt.headers["Host"]
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || string(text) != tt.text {
			t.Errorf("%v: %d %q, want %d %q", tt.headers, resp.StatusCode, text, tt.status, tt.text)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
