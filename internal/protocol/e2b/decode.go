package e2b

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

const (
	// defaultTimeout and oldTimeout are the times until the end of a sandbox for which the client
	// of the new or the old path asks nothing.
	defaultTimeout = 300 * time.Second
	oldTimeout     = 15 * time.Second

	// maxQuery bounds the metadata of a query, in bytes, and maxPage a page of a list.
	maxQuery    = 64 << 10
	maxPage     = 1000
	defaultPage = 100

	allTraffic = "0.0.0.0/0"
)

// create is a request to create a sandbox.
type create struct {
	Template string
	Timeout  *int64 // seconds
	Metadata map[string]string
	Env      map[string]string
	network
	// AutoPause: the sandbox is paused at its timeout, with its memory if PauseMemory. AutoResume: a
	// request resumes it then.
	AutoPause, PauseMemory, AutoResume bool
}

// decodeCreate decodes the body of a request to create a sandbox. What the server cannot do is
// Unsupported; what it does not know is Invalid, because it could be a restriction.
func decodeCreate(raw []byte) (create, error) {
	var c create
	var secure bool
	c.PauseMemory = true
	var autoResume, ports, mcp, iam, volumes json.RawMessage
	err := strictjson.Object("the body", raw,
		strictjson.Text("templateID", &c.Template),
		strictjson.Value("timeout", "a whole number of seconds", &c.Timeout),
		strictjson.Texts("metadata", &c.Metadata), strictjson.Texts("envVars", &c.Env),
		strictjson.Value("allow_internet_access", "true or false", &c.Internet),
		strictjson.Truth("secure", &secure), // every sandbox has an access token
		strictjson.Truth("autoPause", &c.AutoPause), strictjson.Truth("autoPauseMemory", &c.PauseMemory),
		strictjson.Value("autoResume", "an object", &autoResume), strictjson.Value("network", "an object", &ports),
		strictjson.Value("mcp", "an object", &mcp), strictjson.Value("iam", "an object", &iam),
		strictjson.Value("volumeMounts", "a list", &volumes))
	if err != nil {
		return c, err
	}
	var resume struct {
		Enabled bool `json:"enabled"`
	}
	if len(autoResume) > 0 {
		if err := json.Unmarshal(autoResume, &resume); err != nil {
			return c, invalid("autoResume", "autoResume must be an object with enabled", "")
		}
	}
	c.AutoResume = resume.Enabled
	switch {
	case c.AutoResume && !c.AutoPause:
		return c, invalid("autoResume", "autoResume needs autoPause", "")
	case c.AutoResume && !c.PauseMemory:
		return c, invalid("autoResume", "a sandbox that is paused without its memory cannot be resumed by a request", "use connect")
	case !empty(mcp):
		return c, unsupported("mcp", "there is no MCP gateway")
	case !empty(iam):
		return c, unsupported("iam", "there are no workload tokens")
	case !empty(volumes):
		return c, unsupported("volumeMounts", "there are no volumes")
	}
	return c, c.decodeNetwork(ports)
}

// decodeNetwork decodes the member network.
func (c *create) decodeNetwork(raw json.RawMessage) error {
	if empty(raw) {
		return nil
	}
	var b networkBody
	if err := strictjson.Member("network", raw, b.fields()...); err != nil {
		return err
	}
	if err := b.decode(&c.network); err != nil {
		return err
	}
	if _, none := c.egress(); none && c.Internet != nil && *c.Internet {
		return invalid("network", "allow_internet_access is true, and network.denyOut denies everything", "")
	}
	return nil
}

// empty reports whether a member is missing, or an empty value.
func empty(raw json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(raw)), "") {
	case "", "null", "false", "{}", "[]", `""`:
		return true
	}
	return false
}

// timeout checks a number of seconds until the end of a sandbox.
func (s *Server) timeout(seconds *int64, initial time.Duration) (time.Duration, error) {
	most := s.options.MaxTimeout
	if seconds == nil {
		if most >= 0 {
			initial = min(initial, most)
		}
		return initial, nil
	}
	top := int64(365 * 24 * 3600)
	if most >= 0 {
		top = int64(most / time.Second)
	}
	if *seconds < 0 || *seconds > top {
		return 0, invalid("timeout", "timeout must be 0 to "+strconv.FormatInt(top, 10)+" seconds", "the operator can raise max_lifetime")
	}
	return time.Duration(*seconds) * time.Second, nil
}

// decodeMetadata decodes the metadata of a query: a form whose names and values are encoded once
// more.
func decodeMetadata(text string) (map[string]string, error) {
	if len(text) > maxQuery {
		return nil, sandbar.Errorf(sandbar.TooLarge, "metadata has %d bytes, and at most %d are allowed", len(text), maxQuery)
	}
	form, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid("metadata", "metadata is not a form", "send name=value, joined by &")
	}
	all := map[string]string{}
	for name, values := range form {
		key, err := url.PathUnescape(name)
		if err != nil || len(values) != 1 {
			return nil, invalid("metadata", "metadata has the name "+sandbar.Quote(name, 40)+" twice, or wrongly encoded", "")
		}
		value, err := url.PathUnescape(values[0])
		if _, twice := all[key]; err != nil || twice {
			return nil, invalid("metadata", "metadata "+sandbar.Quote(key, 40)+" is given twice, or wrongly encoded", "")
		}
		all[key] = value
	}
	return all, nil
}

// filter selects sandboxes of a list.
type filter struct {
	metadata        map[string]string
	running, paused bool
	startedAfter    time.Time
	template        string
	ascending       bool
	limit           int
	after           *position
	last            position // of the page, while it is made
}

// position is a place in a list: that of a sandbox.
type position struct {
	Started int64  `json:"s"` // nanoseconds since 1970
	ID      string `json:"i"`
}

func (p position) token() string {
	b, _ := json.Marshal(p) // a number and a string can be encoded
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeFilter(q url.Values) (filter, error) {
	f := filter{running: true, paused: true, limit: defaultPage, template: q.Get("template")}
	var err error
	if f.metadata, err = decodeMetadata(q.Get("metadata")); err != nil {
		return f, err
	}
	if states := q["state"]; len(states) > 0 {
		f.running, f.paused = false, false
		for state := range strings.SplitSeq(strings.Join(states, ","), ",") {
			switch state {
			case stateRunning:
				f.running = true
			case statePaused:
				f.paused = true
			default:
				return f, invalid("state", "state "+sandbar.Quote(state, 40)+" is neither running nor paused", "")
			}
		}
	}
	if text := q.Get("startedAfter"); text != "" {
		if f.startedAfter, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return f, invalid("startedAfter", "startedAfter is not a time of RFC 3339", "")
		}
	}
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		f.ascending = true
	default:
		return f, invalid("order", "order must be asc or desc", "")
	}
	if text := q.Get("limit"); text != "" {
		if f.limit, err = strconv.Atoi(text); err != nil || f.limit < 1 || f.limit > maxPage {
			return f, invalid("limit", "limit must be 1 to "+strconv.Itoa(maxPage), "")
		}
	}
	if text := q.Get("nextToken"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		f.after = &position{}
		if err != nil || len(text) > 200 || json.Unmarshal(raw, f.after) != nil {
			return f, invalid("nextToken", "nextToken is not one of this server", "")
		}
	}
	return f, nil
}
