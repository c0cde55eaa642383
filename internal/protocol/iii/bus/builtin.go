package bus

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandbar-dev/sandbar/internal/protocol/iii/channel"
)

// serverID is the worker id of the server itself.
const serverID = "00000000-0000-0000-0000-000000000000"

// workerInfo is a client's description of itself (engine::workers::register).
type workerInfo struct {
	Name        string `json:"name"`
	Runtime     string `json:"runtime,omitempty"`
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
	OS          string `json:"os,omitempty"`
	PID         int64  `json:"pid,omitempty"`
}

// maxAbout is the most of each field of about that is stored, in bytes.
const maxAbout = 256

func (a *workerInfo) cut() {
	for _, f := range []*string{&a.Name, &a.Runtime, &a.Version, &a.Description, &a.OS} {
		if len(*f) > maxAbout {
			*f = strings.ToValidUTF8((*f)[:maxAbout], "")
		}
	}
}

// builtin is a function of the engine itself. It must not block.
type builtin func(c *worker, data json.RawMessage) (any, error)

func (s *Server) builtins() map[string]builtin {
	return map[string]builtin{
		"engine::workers::register": s.workersRegister,
		"engine::workers::list":     s.workersList,
		"engine::workers::info":     s.workersInfo,
		"engine::channels::create":  s.channelsCreate,
		"engine::functions::list":   s.functionsList,
		"engine::functions::info":   s.functionsInfo,
	}
}

// read decodes the payload of a builtin. null and no payload are the same.
func read(data json.RawMessage, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return serialization(err.Error())
	}
	return nil
}

func (s *Server) workersRegister(c *worker, data json.RawMessage) (any, error) {
	var a workerInfo
	// one malformed field must not discard the others
	_ = json.Unmarshal(data, &a)
	a.cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.about = a
	return map[string]bool{"success": true}, nil
}

func (s *Server) channelsCreate(_ *worker, data json.RawMessage) (any, error) {
	var req struct {
		BufferSize *int `json:"buffer_size"`
	}
	if err := read(data, &req); err != nil {
		return nil, err
	}
	buffer := channel.DefaultBuffer
	if req.BufferSize != nil {
		buffer = max(*req.BufferSize, channel.MinBuffer)
	}
	r, w, err := s.opt.Channels.Create(buffer)
	if err != nil {
		return nil, &Error{Code: CodeInvocation, Message: "no channel could be made: " + err.Error()}
	}
	return map[string]channel.Ref{"reader": r, "writer": w}, nil
}

// functionEntry is a function in the result of engine::functions::list.
type functionEntry struct {
	FunctionID  string          `json:"function_id"`
	Namespace   string          `json:"namespace"`
	WorkerName  string          `json:"worker_name"`
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// functionInfo is a function in the result of engine::functions::info.
type functionInfo struct {
	functionEntry
	Request    json.RawMessage `json:"request_schema,omitempty"`
	Response   json.RawMessage `json:"response_schema,omitempty"`
	Registered []struct{}      `json:"registered_triggers"`
}

// known returns all functions, those of clients included, sorted by id.
func (s *Server) known() []functionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []functionInfo
	add := func(f *Function, worker string) {
		all = append(all, functionInfo{functionEntry: functionEntry{FunctionID: f.ID, Namespace: "default", WorkerName: worker,
			Description: f.Description, Metadata: f.Metadata}, Request: f.Request, Response: f.Response,
			Registered: []struct{}{}})
	}
	for _, f := range s.own {
		add(f, s.opt.WorkerName)
	}
	for id := range s.engine {
		add(&Function{ID: id, Description: "a function of the engine itself"}, "engine")
	}
	for _, r := range s.functions {
		add(&r.Function, r.owner.about.Name)
	}
	slices.SortFunc(all, func(a, b functionInfo) int { return cmp.Compare(a.FunctionID, b.FunctionID) })
	return all
}

func internal(id string) bool { return strings.HasPrefix(id, "engine::") }

func (s *Server) functionsList(_ *worker, data json.RawMessage) (any, error) {
	var req struct {
		Search, Prefix, Worker string
		IncludeInternal        bool `json:"include_internal"`
	}
	if err := read(data, &req); err != nil {
		return nil, err
	}
	search := strings.ToLower(req.Search)
	functions := []functionEntry{}
	for _, f := range s.known() {
		if internal(f.FunctionID) && !req.IncludeInternal || !strings.HasPrefix(f.FunctionID, req.Prefix) ||
			req.Worker != "" && f.WorkerName != req.Worker ||
			!strings.Contains(strings.ToLower(f.FunctionID+"\n"+f.Description), search) {
			continue
		}
		functions = append(functions, f.functionEntry)
	}
	return map[string]any{"functions": functions}, nil
}

// maxAsked is the most functions in one engine::functions::info.
const maxAsked = 32

func (s *Server) functionsInfo(_ *worker, data json.RawMessage) (any, error) {
	var req struct {
		FunctionID  *string  `json:"function_id"`
		FunctionIDs []string `json:"function_ids"`
	}
	if err := read(data, &req); err != nil {
		return nil, err
	}
	find := func(id string) (functionInfo, bool) {
		all := s.known()
		i, ok := slices.BinarySearchFunc(all, id, func(f functionInfo, id string) int { return cmp.Compare(f.FunctionID, id) })
		if !ok {
			return functionInfo{}, false
		}
		return all[i], true
	}
	switch {
	case req.FunctionID != nil:
		f, ok := find(*req.FunctionID)
		if !ok {
			return nil, &Error{Code: CodeNoSuch, Message: "there is no function " + show(*req.FunctionID) +
				"; engine::functions::list tells which there are"}
		}
		return f, nil
	case len(req.FunctionIDs) > maxAsked:
		return nil, serialization("function_ids names more than " + strconv.Itoa(maxAsked) + " functions")
	case req.FunctionIDs != nil:
		found := []any{}
		for _, id := range req.FunctionIDs {
			if f, ok := find(id); ok {
				found = append(found, f)
			} else {
				found = append(found, map[string]string{"function_id": id, "error": "not_found"})
			}
		}
		return map[string]any{"functions": found}, nil
	}
	return nil, serialization("missing field `function_id`")
}

// workerEntry is a worker in the result of engine::workers::list.
type workerEntry struct {
	workerInfo
	ID        string `json:"id"`
	Status    string `json:"status"`
	Functions int    `json:"function_count"`
	Calls     int    `json:"active_invocations"`
}

func (s *Server) workersList(_ *worker, data json.RawMessage) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	workers := []workerEntry{{workerInfo: workerInfo{Name: s.opt.WorkerName, Runtime: "go"}, ID: serverID, Status: "connected",
		Functions: len(s.own)}}
	for _, id := range slices.Sorted(maps.Keys(s.workers)) {
		if c := s.workers[id]; c.connected {
			workers = append(workers, workerEntry{workerInfo: c.about, ID: c.id, Status: "connected",
				Functions: len(c.functions), Calls: len(c.calls)})
		}
	}
	return map[string]any{"workers": workers}, nil
}

func (s *Server) workersInfo(c *worker, data json.RawMessage) (any, error) {
	var req struct{ Name *string }
	if err := read(data, &req); err != nil {
		return nil, err
	}
	if req.Name == nil {
		return nil, serialization("missing field `name`")
	}
	all, err := s.workersList(c, nil)
	if err != nil {
		return nil, err
	}
	for _, w := range all.(map[string]any)["workers"].([]workerEntry) {
		if w.Name != *req.Name {
			continue
		}
		functions := []functionEntry{}
		for _, f := range s.known() {
			if f.WorkerName == w.Name {
				functions = append(functions, f.functionEntry)
			}
		}
		return map[string]any{"worker": w, "functions": functions}, nil
	}
	return nil, &Error{Code: CodeNoSuch, Message: "there is no worker called " + show(*req.Name)}
}
