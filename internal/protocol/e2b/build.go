package e2b

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine"
)

const (
	// maxLog bounds the entries of a build's log, maxLine the bytes of one.
	maxLog  = 10_000
	maxLine = 4 << 10
	// readyTimeout bounds the time until the ready command succeeds, readyInterval is the time
	// between two attempts.
	readyTimeout  = 2 * time.Minute
	readyInterval = 200 * time.Millisecond
)

// build is what a template adds to its files.
type build struct {
	ID string `json:"id"`
	// Env are the variables of all programs.
	Env map[string]string `json:"env,omitempty"`
	// Dir is where relative paths begin, "" for the home directory.
	Dir string `json:"dir,omitempty"`
	// Start is the command that every sandbox of the template starts, Ready the command that succeeds
	// when a sandbox can be used.
	Start string `json:"start,omitempty"`
	Ready string `json:"ready,omitempty"`
	// Steps are the digests of the steps, each with those before it.
	Steps []string `json:"steps,omitempty"`
}

// job is the build of a template.
type job struct {
	id, template       string
	names              []string
	client             sandbar.Client
	cpus, memory, disk int64 // 0: the defaults; memory and disk in MiB
	began              time.Time

	mu     sync.Mutex
	status string
	logs   []logEntry
	reason *failure
}

// begin reports whether the job waited, and starts it.
func (j *job) begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.status != waiting {
		return false
	}
	j.status = building
	return true
}

// over reports whether the job has ended, or was never started.
func (j *job) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.status == ready || j.status == failed || j.status == waiting && time.Since(j.began) > buildTimeout
}

// log adds an entry.
func (j *job) log(level, step, message string) {
	if len(message) > maxLine {
		message = message[:maxLine] + "…"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch n := len(j.logs); {
	case n == maxLog:
		level, message = "warn", "the log is full: further lines are left out"
	case n > maxLog:
		return
	}
	j.logs = append(j.logs, logEntry{time.Now().UTC(), level, strings.ToValidUTF8(message, "\ufffd"), step})
}

// end ends the job.
func (j *job) end(step string, err error) {
	if err != nil {
		j.log("error", step, messageOf(err))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.status = ready
	if err != nil {
		j.status, j.reason = failed, &failure{Message: messageOf(err), Step: step, Logs: []logEntry{}}
	}
}

func (j *job) describe(offset int) buildStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	page := j.logs[min(offset, len(j.logs)):]
	return buildStatus{TemplateID: j.template, BuildID: j.id, Status: j.status, Reason: j.reason, Logs: []string{},
		LogEntries: append([]logEntry{}, page[:min(len(page), logPage)]...)}
}

// builder builds a template in a sandbox.
type builder struct {
	s       *Server
	job     *job
	recipe  recipe
	sandbox *engine.Sandbox
	env     map[string]string
	dir     string
	step    string // of the log
}

// build runs a job to its end.
func (s *Server) build(ctx context.Context, j *job, p recipe) {
	b := &builder{s: s, job: j, recipe: p, env: map[string]string{}, dir: home, step: "base"}
	err := b.run(ctx)
	if err != nil && b.sandbox != nil {
		s.engine.Stop(context.Background(), b.sandbox.ID())
	}
	j.end(b.step, err)
	s.options.Logger.Info("template build ended", slog.Any("", j.client), "template", j.template, "build", j.id, "took", time.Since(j.began), "code", string(sandbar.CodeOf(err)))
}

func (b *builder) run(ctx context.Context) error {
	chain, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	total := len(b.recipe.steps)
	for i, st := range b.recipe.steps {
		b.step = strconv.Itoa(i + 1)
		title := "[builder " + b.step + "/" + strconv.Itoa(total) + "] " + st.Type + " " + strings.Join(st.Args, " ")
		if i < done {
			title = "CACHED " + title
		}
		b.job.log("info", b.step, title)
		if err := b.apply(ctx, st, i >= done); err != nil {
			return err
		}
	}
	b.step = "finalize"
	made := &build{ID: b.job.id, Env: b.env, Start: b.recipe.start, Ready: b.recipe.ready, Steps: chain}
	if b.dir != home {
		made.Dir = b.dir
	}
	if b.s.engine.Caps().SavesPrograms { // the copies have the running command
		if err := made.launch(ctx, b.sandbox, b.env, b.sink()); err != nil {
			return err
		}
	}
	if err := b.s.keepAs(ctx, b.sandbox.ID(), saved{Kind: templateKind, Label: b.job.template, Names: b.job.names, Template: b.job.template, Build: made}); err != nil {
		return err
	}
	b.cleanUp(ctx)
	b.job.log("info", b.step, "the template is ready")
	return nil
}

// begin makes the sandbox: from the longest template whose steps are those of the recipe, or from
// its base. done is the number of steps that it has.
func (b *builder) begin(ctx context.Context) (chain []string, done int, err error) {
	p := b.recipe
	image, parent := p.image, state{}
	if image == "e2bdev/base" || image == "e2bdev/code-interpreter" {
		image = baseTemplate
	}
	root := "image " + image
	if p.template != "" {
		if parent, _ = b.s.state(ctx, p.template); parent.id != "" {
			root = "state " + string(parent.id)
		} else {
			image, root = p.template, "image "+p.template
		}
	}
	root += " " + strconv.FormatInt(b.job.cpus, 10) + " " + strconv.FormatInt(b.job.memory, 10) + " " + strconv.FormatInt(b.job.disk, 10)
	for _, st := range p.steps {
		text, err := json.Marshal([]any{root, st.Type, st.Args, st.Hash})
		if err != nil {
			return nil, 0, err
		}
		sum := sha256.Sum256(text)
		root = hex.EncodeToString(sum[:])
		chain = append(chain, root)
	}
	from := engine.FromPaused{Client: b.job.client}
	if cached, n := b.cached(ctx, chain); n > 0 {
		if b.sandbox, err = b.s.engine.CreateFrom(ctx, cached.id, from); err == nil {
			b.inherit(parent)
			return chain, n, nil
		}
		b.job.log("warn", b.step, "the cache cannot be used: "+messageOf(err))
	}
	if parent.id != "" {
		b.inherit(parent)
		b.sandbox, err = b.s.engine.CreateFrom(ctx, parent.id, from)
		return chain, 0, err
	}
	spec := b.s.spec(b.job.client, create{Template: image})
	_, _, most := b.s.engine.Limits()
	if b.job.cpus > 0 {
		spec.Limits.CPUs = float64(b.job.cpus)
		if most.CPUs > 0 {
			spec.Limits.CPUs = math.Min(spec.Limits.CPUs, most.CPUs) // a smaller machine has no more
		}
	}
	spec.Limits.Memory, spec.Limits.Disk = b.job.memory<<20, b.job.disk<<20
	b.sandbox, err = b.s.engine.Create(ctx, spec)
	if sandbar.CodeOf(err) == sandbar.NotFound {
		err = &sandbar.Error{Code: sandbar.NotFound, Field: "fromImage", Message: "image " + sandbar.Quote(image, 100) + " is not on this host",
			Fix: "let the operator fetch it: sandbar images pull " + image}
	}
	return chain, 0, err
}

// inherit takes over what a parent adds to its files.
func (b *builder) inherit(parent state) {
	if parent.Build != nil {
		maps.Copy(b.env, parent.Build.Env)
		if parent.Build.Dir != "" {
			b.dir = parent.Build.Dir
		}
	}
}

// cached returns the state with the longest beginning of a chain, and its length. Steps that are
// forced are not in it.
func (b *builder) cached(ctx context.Context, chain []string) (best state, n int) {
	if b.recipe.force {
		return best, 0
	}
	if forced := slices.IndexFunc(b.recipe.steps, func(st step) bool { return st.Force }); forced >= 0 {
		chain = chain[:forced]
	}
	for _, st := range b.s.states(ctx) {
		if st.Kind != templateKind || st.Build == nil {
			continue
		}
		k := len(st.Build.Steps)
		running := b.s.engine.Caps().SavesPrograms && st.Build.Start != ""
		if k > n && k <= len(chain) && st.Build.Steps[k-1] == chain[k-1] && !running {
			best, n = st, k
		}
	}
	return best, n
}

// apply applies one step. Without run its files are there already.
func (b *builder) apply(ctx context.Context, st step, run bool) error {
	args := func(least, most int) error {
		if len(st.Args) < least || len(st.Args) > most {
			return invalid("steps", "the step "+sandbar.Quote(st.Type, 20)+" has a wrong number of arguments", "")
		}
		return nil
	}
	switch st.Type {
	case "ENV", "ARG":
		if len(st.Args)%2 != 0 {
			return args(len(st.Args)+1, 0)
		}
		for i := 0; i < len(st.Args); i += 2 {
			b.env[st.Args[i]] = st.Args[i+1]
		}
		return sandbar.CheckEnv(b.env)
	case "USER":
		if err := args(1, 1); err != nil {
			return err
		}
		return checkUser(st.Args[0])
	case "WORKDIR":
		if err := args(1, 1); err != nil {
			return err
		}
		dir, err := resolveIn(b.dir, st.Args[0])
		if err != nil {
			return err
		}
		b.dir = dir
		if !run {
			return nil
		}
		return b.exec(ctx, "/", nil, "/bin/sh", "-c", `mkdir -p -- "$1"`, "sh", dir)
	case "RUN":
		if err := args(1, 2); err != nil {
			return err
		}
		if len(st.Args) == 2 {
			if err := checkUser(st.Args[1]); err != nil {
				return err
			}
		}
		if !run {
			return nil
		}
		return b.exec(ctx, b.dir, nil, "/bin/bash", "-l", "-c", st.Args[0])
	case "COPY":
		if err := args(2, 4); err != nil {
			return err
		}
		if !run {
			return nil
		}
		return b.copy(ctx, st)
	}
	return unsupported("steps", "the step "+sandbar.Quote(st.Type, 20)+" is not supported")
}

// copyScript unpacks an archive from its input, and copies what a pattern matches to a destination,
// as COPY of a Dockerfile does. Its arguments are an option of tar, the pattern, the destination
// and a mode.
const copyScript = `set -e
dir=$(mktemp -d)
trap 'rm -rf -- "$dir"' EXIT
tar -x -o $1 -f - -C "$dir"
pattern=${2#./} to=$3 mode=$4 n=0
IFS=
for f in "$dir"/$pattern; do
  [ -e "$f" ] || [ -L "$f" ] || { echo "no files match $pattern" >&2; exit 1; }
  n=$((n + 1))
done
for f in "$dir"/$pattern; do
  [ -z "$mode" ] || chmod -R -- "$mode" "$f"
  if [ -d "$f" ] && [ ! -L "$f" ]; then
    mkdir -p -- "$to"
    cp -R -P -p -f -- "$f/." "$to/"
  else
    case $to in
    */) into=1 ;;
    *) if [ -d "$to" ] || [ "$n" -gt 1 ]; then into=1; else into=; fi ;;
    esac
    if [ "$into" ]; then mkdir -p -- "$to"; cp -P -p -f -- "$f" "${to%/}/"; else mkdir -p -- "$(dirname -- "$to")"; cp -P -p -f -- "$f" "$to"; fi
  fi
done`

// copy applies a COPY step. The archive is unpacked in the sandbox.
func (b *builder) copy(ctx context.Context, st step) error {
	source, to := st.Args[0], st.Args[1]
	var mode string
	if len(st.Args) > 2 {
		if err := checkUser(st.Args[2]); err != nil {
			return err
		}
	}
	if len(st.Args) > 3 {
		mode = st.Args[3]
	}
	if strings.HasPrefix(source, "/") || slices.Contains(strings.Split(source, "/"), "..") {
		return invalid("steps", "COPY: the source "+sandbar.Quote(source, 100)+" is not inside its directory", "")
	}
	if mode != "" {
		if _, err := strconv.ParseUint(mode, 8, 12); err != nil {
			return invalid("steps", "COPY: the mode "+sandbar.Quote(mode, 20)+" is not an octal number", "")
		}
	}
	resolved, err := resolveIn(b.dir, to)
	if err != nil {
		return err
	}
	if strings.HasSuffix(to, "/") || to == "." {
		resolved += "/"
	}
	f, err := os.Open(filepath.Join(b.s.options.Dir, uploadName(b.job.client, b.job.template, filepath.Base(st.Hash))))
	if err != nil {
		return &sandbar.Error{Code: sandbar.NotFound, Field: "steps", Message: "COPY: the files of " + sandbar.Quote(source, 100) + " were not uploaded", Fix: "upload them first", Err: err}
	}
	defer f.Close()
	var head [2]byte
	io.ReadFull(f, head[:]) // a short file is not compressed
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	option := "-o" // it is there already
	if head == [2]byte{0x1f, 0x8b} {
		option = "-z"
	}
	return b.exec(ctx, "/", f, "/bin/sh", "-c", copyScript, "sh", option, source, resolved, mode)
}

// exec runs a command to its end. Its output goes to the log.
func (b *builder) exec(ctx context.Context, dir string, stdin sandbar.Input, args ...string) error {
	out := b.sink()
	r, err := b.sandbox.Exec(ctx, sandbar.Cmd{Args: args, Dir: dir, Env: b.env}, stdin, sandbar.Limits{}, out)
	out.flush()
	if err != nil {
		return err
	}
	e, err := endEventOf(r)
	if err == nil && (e.ExitCode != 0 || !e.Exited) {
		why := e.Status
		if e.Error != "" {
			why = e.Error
		}
		err = sandbar.Errorf(sandbar.Invalid, "the command failed: %s", why)
	}
	return err
}

func (b *builder) sink() *lineSink { return &lineSink{job: b.job, step: b.step} }

// lineSink writes output to a job's log, line by line. It implements engine.Sink.
type lineSink struct {
	job   *job
	step  string
	lines [3][]byte
}

// Started implements engine.Sink.
func (*lineSink) Started() {}

// Output implements engine.Sink.
func (s *lineSink) Output(c sandbar.Chunk) error {
	rest := append(s.lines[c.Stream], c.Data...)
	for {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 && len(rest) <= maxLine {
			break
		}
		line := rest
		if i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		s.job.log("info", s.step, "["+c.Stream.String()+"]: "+strings.TrimSuffix(string(line), "\r"))
	}
	s.lines[c.Stream] = bytes.Clone(rest)
	return nil
}

// flush writes the last line, which may have no end.
func (s *lineSink) flush() {
	for _, of := range []sandbar.Stream{sandbar.Stdout, sandbar.Stderr} {
		if len(s.lines[of]) > 0 {
			s.Output(sandbar.Chunk{Stream: of, Data: []byte("\n")})
		}
	}
}

// cleanUp removes the builds of the template that no name leads to, and the uploads.
func (b *builder) cleanUp(ctx context.Context) {
	all := b.s.states(ctx)
	for _, st := range all {
		if st.Label == b.job.template && len(st.current(all)) == 0 {
			b.s.engine.Stop(context.Background(), st.id) // one that is in use is removed after the next build
		}
	}
	for _, st := range b.recipe.steps {
		if st.Hash != "" {
			os.Remove(filepath.Join(b.s.options.Dir, uploadName(b.job.client, b.job.template, filepath.Base(st.Hash))))
		}
	}
}

// launch starts the start command, and waits until the ready command succeeds.
func (t *build) launch(ctx context.Context, sandbox *engine.Sandbox, env map[string]string, sink engine.Sink) error {
	if t.Start != "" {
		if _, err := sandbox.StartSink(ctx, t.command(t.Start, env), nil, sandbar.Limits{}, sink); err != nil {
			return err
		}
	}
	return t.await(ctx, sandbox, env)
}

// command returns a command of the template.
func (t *build) command(line string, env map[string]string) sandbar.Cmd {
	dir := t.Dir
	if dir == "" {
		dir = home
	}
	return sandbar.Cmd{Args: []string{"/bin/bash", "-l", "-c", line}, Dir: dir, Env: env}
}

// await waits until the ready command succeeds.
func (t *build) await(ctx context.Context, sandbox *engine.Sandbox, env map[string]string) error {
	if t.Ready == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		r, err := sandbox.Exec(ctx, t.command(t.Ready, env), nil, sandbar.Limits{}, nil)
		switch {
		case ctx.Err() != nil:
			return &sandbar.Error{Code: sandbar.Timeout, Message: "the template's ready command has not succeeded in time", Fix: "check its start command and its ready command"}
		case err != nil:
			return err
		case r.Outcome == sandbar.Exited && r.ExitCode == 0:
			return nil
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
		}
	}
}

// resolveIn is resolve with another directory where relative paths begin.
func resolveIn(dir, name string) (string, error) {
	if name == "" {
		return dir, nil
	}
	resolved, err := resolve(name)
	if err == nil && name[0] != '/' && name[0] != '~' {
		resolved = path.Join(dir, name)
	}
	return resolved, err
}

// resolve returns the absolute path of a path of the client. A relative one begins in the working
// directory of the sandbox's template.
func (e *entry) resolve(name string) (string, error) {
	dir := home
	if e.Build != nil && e.Build.Dir != "" {
		dir = e.Build.Dir
	}
	return resolveIn(dir, name)
}

// launch starts the commands of the sandbox's template, unless its programs were saved with it.
func (l *life) launch(ctx context.Context) error {
	t := l.Build
	if t == nil || t.Start == "" || l.server.engine.Caps().SavesPrograms {
		return nil
	}
	cmd := t.command(t.Start, l.environment(nil))
	p := &process{info: processInfo{Config: processConfig{Cmd: cmd.Args[0], Args: cmd.Args[1:], Cwd: cmd.Dir}}, log: &l.log, followers: map[*follower]struct{}{}}
	run, err := l.sandbox.StartSink(ctx, cmd, nil, sandbar.Limits{}, p)
	if err != nil {
		return err
	}
	p.run = run
	l.addProcess(p)
	go l.awaitEnd(p)
	return t.await(ctx, l.sandbox, l.environment(nil))
}
