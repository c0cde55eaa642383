package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
	"github.com/sandbar-dev/sandbar/internal/protocol/ports"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

const (
	// maxJobs bounds the builds whose status is kept, running ones included.
	maxJobs = 100
	// maxUploads bounds the files of COPY steps that wait for their builds.
	maxUploads = 200
	// logPage is the most log entries of one answer.
	logPage = 100
	// buildTimeout bounds a build from its request to its end.
	buildTimeout = time.Hour
)

// The states of a build.
const (
	waiting  = "waiting"
	building = "building"
	ready    = "ready"
	failed   = "error"
)

// templateRequest is a request to build a template. It begins with a job; the client uploads files,
// and starts the job.
type templateRequest struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Names      []string `json:"names"`
	Aliases    []string `json:"aliases"`
	Tags       []string `json:"tags"`
	Public     bool     `json:"public"`
}

// logEntry is one line of a build's log.
type logEntry struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

// failure is why a build failed. Step is the number of its step, from 1, or "base" or "finalize".
type failure struct {
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Logs    []logEntry `json:"logEntries"`
}

// buildStatus is the state of a build for clients.
type buildStatus struct {
	TemplateID string     `json:"templateID"`
	BuildID    string     `json:"buildID"`
	Status     string     `json:"status"`
	LogEntries []logEntry `json:"logEntries"`
	Logs       []string   `json:"logs"`
	Reason     *failure   `json:"reason,omitempty"`
}

// requestBuild makes a job. A template that has its name already gets another build.
func (s *Server) requestBuild(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var name, alias, team string
	var tags []string
	var cpus, memory, disk *int64
	err = strictjson.Object("the body", raw, strictjson.Text("name", &name), strictjson.Text("alias", &alias), strictjson.Text("teamID", &team), strictjson.List("tags", &tags),
		strictjson.Value("cpuCount", "a whole number", &cpus), strictjson.Value("memoryMB", "a whole number", &memory), strictjson.Value("minFreeDiskMb", "a whole number", &disk))
	if err != nil {
		return err
	}
	if !s.engine.Saves() {
		return unsupported("", "this driver cannot save a sandbox, so it has no templates")
	}
	if name == "" {
		name = alias
	}
	full, err := checkName(name)
	if err != nil {
		return err
	}
	base, tag, _ := strings.Cut(full, ":")
	if !strings.Contains(name, ":") && len(tags) > 0 {
		tag = "" // the tags replace the default one
	}
	j := &job{id: newUUID(), client: engine.Client(r.Context()), names: []string{}, status: waiting, began: time.Now()}
	for _, t := range append([]string{tag}, tags...) {
		if t == "" {
			continue
		}
		n, err := checkName(base + ":" + t)
		if err != nil {
			return err
		}
		if !slices.Contains(j.names, n) {
			j.names = append(j.names, n)
		}
	}
	for _, n := range []struct {
		name string
		from *int64
		most int64
		to   *int64
	}{{"cpuCount", cpus, 1024, &j.cpus}, {"memoryMB", memory, 1 << 30, &j.memory}, {"minFreeDiskMb", disk, 1 << 30, &j.disk}} {
		if n.from != nil {
			if *n.from < 1 || *n.from > n.most {
				return invalid(n.name, n.name+" must be a positive number", "")
			}
			*n.to = *n.from
		}
	}
	j.template = s.labelOf(r.Context(), base)
	if err := s.addJob(j); err != nil {
		return err
	}
	answered := templateRequest{TemplateID: j.template, BuildID: j.id, Names: []string{base}, Aliases: []string{base}, Tags: []string{}}
	for _, n := range j.names {
		answered.Tags = append(answered.Tags, strings.TrimPrefix(n, base+":"))
	}
	answer(w, http.StatusAccepted, answered)
	return nil
}

// labelOf returns the id of the tenant's template with a name, a new one if there is none.
func (s *Server) labelOf(ctx context.Context, base string) string {
	has := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, base+":") })
	}
	for _, st := range s.states(ctx) {
		if st.Kind == templateKind && has(st.Names) {
			return st.Label
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if has(j.names) && j.client.Tenant == engine.Client(ctx).Tenant {
			return j.template
		}
	}
	return newLabel("t")
}

// addJob registers a job, and forgets the oldest ones that have ended.
func (s *Server) addJob(j *job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return shuttingDown()
	}
	for i := 0; len(s.jobs) >= maxJobs && i < len(s.jobs); {
		if old := s.jobs[i]; old.over() {
			s.jobs = slices.Delete(s.jobs, i, i+1)
			continue
		}
		i++
	}
	if len(s.jobs) >= maxJobs {
		return &sandbar.Error{Code: sandbar.Exhausted, Message: "too many builds are in progress", Fix: "wait for others"}
	}
	s.jobs = append(s.jobs, j)
	return nil
}

// job returns a job of a template of the caller's tenant.
func (s *Server) job(ctx context.Context, template, id string) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.id == id && j.template == template && j.client.Tenant == engine.Client(ctx).Tenant {
			return j, nil
		}
	}
	return nil, &sandbar.Error{Code: sandbar.NotFound, Field: "buildID", Message: "build " + sandbar.Quote(id, 80) + " of template " + sandbar.Quote(template, 80) + " not found"}
}

// serveAlias says whether a template with a name exists.
func (s *Server) serveAlias(w http.ResponseWriter, r *http.Request, name string) error {
	st, ok := s.state(r.Context(), name)
	if !ok || st.Kind != templateKind {
		if imageOf(name) == "" {
			st.Label = name
		} else {
			return templateNotFound(name)
		}
	}
	answer(w, http.StatusOK, map[string]any{"templateID": st.Label, "public": false})
	return nil
}

// serveTags lists the tags of a template.
func (s *Server) serveTags(w http.ResponseWriter, r *http.Request, template string) error {
	type tag struct {
		Tag     string    `json:"tag"`
		BuildID string    `json:"buildID"`
		Created time.Time `json:"createdAt"`
	}
	own, ok := s.state(r.Context(), template)
	if !ok || own.Build == nil {
		return templateNotFound(template)
	}
	tags, all := []tag{}, s.states(r.Context())
	for _, st := range all {
		if st.Label != own.Label {
			continue
		}
		for _, name := range st.current(all) {
			_, t, _ := strings.Cut(name, ":")
			tags = append(tags, tag{t, st.Build.ID, st.named(name).UTC()})
		}
	}
	answer(w, http.StatusOK, tags)
	return nil
}

// serveUpload serves the files of a COPY step: GET says where to upload them, PUT is the upload.
// They are kept until a build with them has succeeded.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, template, hash string) error {
	if !regexp.MustCompile(`^t[0-9a-f]{20}$`).MatchString(template) || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(hash) {
		return templateNotFound(template)
	}
	dir, err := s.uploads()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, uploadName(engine.Client(r.Context()), template, hash))
	if r.Method == http.MethodGet {
		_, err := os.Stat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		scheme := "http"
		if ports.IsHTTPS(r) {
			scheme = "https"
		}
		answer(w, http.StatusCreated, map[string]any{"present": err == nil, "url": scheme + "://" + r.Host + r.URL.EscapedPath(),
			"headers": map[string]string{keyHeader: r.Header.Get(keyHeader)}})
		return nil
	}
	if err := s.upload(r, dir, path); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// uploadName returns the name of the file of an upload, which belongs to a tenant.
func uploadName(c sandbar.Client, template, hash string) string {
	if c.Tenant != "" {
		template = c.Tenant + "~" + template
	}
	return template + "-" + hash
}

// uploads returns the directory of uploads.
func (s *Server) uploads() (string, error) {
	if s.options.Dir == "" {
		return "", unsupported("", "this server has no directory for uploads")
	}
	return s.options.Dir, os.MkdirAll(s.options.Dir, 0o700)
}

// upload keeps the body of a request as a file.
func (s *Server) upload(r *http.Request, dir, path string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) >= maxUploads {
		return &sandbar.Error{Code: sandbar.Exhausted, Message: "too many uploads wait for their builds", Fix: "build their templates"}
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	n, err := io.Copy(f, io.LimitReader(r.Body, s.options.MaxFile+1))
	if n > s.options.MaxFile {
		err = sandbar.Errorf(sandbar.TooLarge, "the upload has more than %d bytes", s.options.MaxFile)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// step is one instruction of a template.
type step struct {
	Type  string   `json:"type"`
	Args  []string `json:"args"`
	Hash  string   `json:"filesHash"`
	Force bool     `json:"force"`
}

// recipe is what a client builds.
type recipe struct {
	image, template string // one of them
	steps           []step
	start, ready    string
	force           bool
}

// startBuild starts a job.
func (s *Server) startBuild(w http.ResponseWriter, r *http.Request, template, id string) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var p recipe
	var registry json.RawMessage
	if err := strictjson.Object("the body", raw, strictjson.Text("fromImage", &p.image), strictjson.Text("fromTemplate", &p.template),
		strictjson.Value("fromImageRegistry", "an object", &registry), strictjson.Truth("force", &p.force), strictjson.Text("startCmd", &p.start),
		strictjson.Text("readyCmd", &p.ready), strictjson.Value("steps", "a list of steps", &p.steps)); err != nil {
		return err
	}
	switch {
	case !empty(registry):
		return unsupported("fromImageRegistry", "images are pulled by the operator (sandbar images pull)")
	case (p.image == "") == (p.template == ""):
		return invalid("fromImage", "one of fromImage and fromTemplate must be given", "")
	}
	j, err := s.job(r.Context(), template, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(engine.WithClient(s.patient, j.client), buildTimeout)
	if err := s.watch(func() {
		defer cancel()
		s.build(ctx, j, p)
	}, j); err != nil {
		cancel()
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// watch starts the goroutine of a job that waits.
func (s *Server) watch(run func(), j *job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return shuttingDown()
	}
	if !j.begin() {
		return sandbar.Errorf(sandbar.Conflict, "build %s was started before", j.id)
	}
	s.watching.Go(run)
	return nil
}

// serveStatus serves the state of a job, and its log from an offset on.
func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request, template, id string) error {
	j, err := s.job(r.Context(), template, id)
	if err != nil {
		return err
	}
	offset := 0
	if text := r.URL.Query().Get("logsOffset"); text != "" {
		if offset, err = strconv.Atoi(text); err != nil || offset < 0 {
			return invalid("logsOffset", "logsOffset must be a number from 0", "")
		}
	}
	answer(w, http.StatusOK, j.describe(offset))
	return nil
}
