package e2b

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/text/strictjson"
)

// maxTags bounds the tags of one request, and the names of one state.
const maxTags = 100

// assignTags gives tags to the build that a name leads to. A tag that another build has moves.
func (s *Server) assignTags(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var target string
	var tags []string
	if err := strictjson.Object("the body", raw, strictjson.Text("target", &target), strictjson.List("tags", &tags)); err != nil {
		return err
	}
	s.tagging.Lock()
	defer s.tagging.Unlock()
	st, ok := s.state(r.Context(), strings.ToLower(target))
	if !ok || st.Kind != templateKind {
		return templateNotFound(target)
	}
	base, _, _ := strings.Cut(strings.ToLower(target), ":")
	if base == st.Label && len(st.Names) > 0 {
		base, _, _ = strings.Cut(st.Names[0], ":")
	}
	names, err := namesOf(base, tags)
	if err != nil {
		return err
	}
	v := st.saved
	v.Names, v.Named = slices.Clone(v.Names), maps.Clone(v.Named)
	if v.Named == nil {
		v.Named = map[string]time.Time{}
	}
	for _, n := range names {
		if !slices.Contains(v.Names, n) {
			v.Names = append(v.Names, n)
		}
		v.Named[n] = time.Now()
	}
	if len(v.Names) > maxTags {
		return sandbar.Errorf(sandbar.TooLarge, "a build has at most %d names with tags", maxTags)
	}
	if err := s.keepSaved(r.Context(), st, v); err != nil {
		return err
	}
	given := []string{}
	for _, n := range names {
		_, tag, _ := strings.Cut(n, ":")
		given = append(given, tag)
	}
	answer(w, http.StatusCreated, map[string]any{"buildID": st.Build.ID, "tags": given})
	return nil
}

// namesOf returns a name with each of several tags.
func namesOf(base string, tags []string) ([]string, error) {
	if len(tags) == 0 || len(tags) > maxTags {
		return nil, invalid("tags", "tags must have 1 to 100 tags", "")
	}
	var names []string
	for _, tag := range tags {
		n, err := checkName(base + ":" + tag)
		if err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, nil
}

// removeTags takes tags from the builds of a name. The builds stay: the id of the template leads to
// the newest one.
func (s *Server) removeTags(w http.ResponseWriter, r *http.Request) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var base string
	var tags []string
	if err := strictjson.Object("the body", raw, strictjson.Text("name", &base), strictjson.List("tags", &tags)); err != nil {
		return err
	}
	names, err := namesOf(base, tags)
	if err != nil {
		return err
	}
	s.tagging.Lock()
	defer s.tagging.Unlock()
	all := s.states(r.Context())
	for _, n := range names {
		if st, ok := holder(all, n); !ok || st.Kind != templateKind {
			return templateNotFound(n)
		}
	}
	// The oldest first: a name that is taken from some of its builds still leads to the last one.
	slices.Reverse(all)
	for _, st := range all {
		v := st.saved
		v.Names = slices.DeleteFunc(slices.Clone(v.Names), func(n string) bool { return slices.Contains(names, n) })
		if len(v.Names) == len(st.Names) || v.Kind != templateKind {
			continue
		}
		v.Named = maps.Clone(v.Named)
		for _, n := range names {
			delete(v.Named, n)
		}
		if err := s.keepSaved(r.Context(), st, v); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// keepSaved replaces the description of a state.
func (s *Server) keepSaved(ctx context.Context, st state, v saved) error {
	b, err := json.Marshal(note{Saved: &v})
	if err != nil {
		return err
	}
	return s.engine.SetPausedNote(ctx, st.id, b)
}

// templateInfo describes a template in a list.
type templateInfo struct {
	TemplateID  string     `json:"templateID"`
	BuildID     string     `json:"buildID"`
	BuildStatus string     `json:"buildStatus"`
	BuildCount  int        `json:"buildCount"`
	Names       []string   `json:"names"`
	Aliases     []string   `json:"aliases"`
	Public      bool       `json:"public"`
	Created     time.Time  `json:"createdAt"`
	Updated     time.Time  `json:"updatedAt"`
	CreatedBy   *struct{}  `json:"createdBy"`
	LastSpawned *time.Time `json:"lastSpawnedAt"`
	SpawnCount  int        `json:"spawnCount"`
	EnvdVersion string     `json:"envdVersion"`
	size
}

// size are the resources of a template's sandboxes.
type size struct {
	CPUs     int   `json:"cpuCount"`
	MemoryMB int64 `json:"memoryMB"`
	DiskMB   int64 `json:"diskSizeMB"`
}

// sizeOf returns the resources of a sandbox.
func sizeOf(spec sandbar.Spec) size {
	l := size{CPUs: runtime.NumCPU(), MemoryMB: max(spec.Limits.Memory, 0) >> 20, DiskMB: max(spec.Limits.Disk, 0) >> 20}
	if spec.Limits.CPUs > 0 {
		l.CPUs = int(math.Ceil(spec.Limits.CPUs))
	}
	return l
}

// buildInfo describes a build of a template.
type buildInfo struct {
	BuildID  string    `json:"buildID"`
	Status   string    `json:"status"`
	Created  time.Time `json:"createdAt"`
	Updated  time.Time `json:"updatedAt"`
	Finished time.Time `json:"finishedAt"`
	Envd     string    `json:"envdVersion"`
	size
}

// templates returns the templates, the one with the newest build first. Uses are not counted.
func (s *Server) templates(ctx context.Context) []templateInfo {
	all := []templateInfo{}
	for _, st := range s.states(ctx) {
		if st.Kind != templateKind || st.Build == nil {
			continue
		}
		i := slices.IndexFunc(all, func(t templateInfo) bool { return t.TemplateID == st.Label })
		if i < 0 {
			i = len(all)
			all = append(all, templateInfo{TemplateID: st.Label, BuildID: st.Build.ID, BuildStatus: ready, Names: []string{}, Updated: st.since.UTC(), EnvdVersion: envdVersion, size: sizeOf(st.spec)})
		}
		t := &all[i]
		t.BuildCount++
		t.Created = st.since.UTC()
		for _, n := range st.Names {
			if base, _, _ := strings.Cut(n, ":"); !slices.Contains(t.Names, base) {
				t.Names = append(t.Names, base)
			}
		}
		t.Aliases = t.Names
	}
	return all
}

// listTemplates lists the templates; the old path in one page.
func (s *Server) listTemplates(w http.ResponseWriter, r *http.Request, version string) error {
	f, err := decodeFilter(r.URL.Query())
	if err != nil {
		return err
	}
	page := []templateInfo{}
	for _, t := range s.templates(r.Context()) {
		at := position{t.Updated.UnixNano(), t.TemplateID}
		if version == "v2" && f.after != nil && f.compare(at, *f.after) <= 0 {
			continue
		}
		if version == "v2" && len(page) == f.limit {
			w.Header().Set("X-Next-Token", f.last.token())
			break
		}
		f.last = at
		page = append(page, t)
	}
	answer(w, http.StatusOK, page)
	return nil
}

// template returns a template by its id or a name.
func (s *Server) template(ctx context.Context, name string) (templateInfo, error) {
	st, _ := s.state(ctx, name)
	for _, t := range s.templates(ctx) {
		if t.TemplateID == cmp.Or(st.Label, name) {
			return t, nil
		}
	}
	return templateInfo{}, templateNotFound(name)
}

// serveTemplate describes a template with its builds, newest first, in one page.
func (s *Server) serveTemplate(w http.ResponseWriter, r *http.Request, name string) error {
	t, err := s.template(r.Context(), name)
	if err != nil {
		return err
	}
	builds := []buildInfo{}
	for _, st := range s.states(r.Context()) {
		if st.Label == t.TemplateID && st.Build != nil {
			at := st.since.UTC()
			builds = append(builds, buildInfo{BuildID: st.Build.ID, Status: ready, Created: at, Updated: at, Finished: at, Envd: envdVersion, size: sizeOf(st.spec)})
		}
	}
	answer(w, http.StatusOK, struct {
		templateInfo
		Builds []buildInfo `json:"builds"`
	}{t, builds})
	return nil
}

// updateTemplate serves a change of a template: all clients have it, and others cannot.
func (s *Server) updateTemplate(w http.ResponseWriter, r *http.Request, name string) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var public bool
	if err := strictjson.Object("the body", raw, strictjson.Truth("public", &public)); err != nil {
		return err
	}
	t, err := s.template(r.Context(), name)
	if err != nil {
		return err
	}
	if public {
		return unsupported("public", "a template cannot be published: all API keys of this daemon have it, and nobody else")
	}
	answer(w, http.StatusOK, map[string]any{"names": t.Names})
	return nil
}

// serveBuildLogs serves the log of a build.
func (s *Server) serveBuildLogs(w http.ResponseWriter, r *http.Request, template, id string) error {
	j, err := s.job(r.Context(), template, id)
	if err != nil {
		return err
	}
	q, err := decodeLogQuery(r.URL.Query(), false)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, map[string]any{"logs": j.lines(q)})
	return nil
}
