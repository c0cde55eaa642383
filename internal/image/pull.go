package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sandbar-dev/sandbar"
)

// Credentials authenticate to a registry.
type Credentials struct {
	User, Password string
	// Token is a bearer token, instead of User and Password.
	Token string
}

// PullOptions are the parameters of a pull.
type PullOptions struct {
	// Credentials, if not nil, replace those of Docker's configuration.
	Credentials *Credentials
	// Registries are hosts, or host:port, that may have non-public addresses. InsecureRegistries
	// may too, and are used without TLS.
	Registries, InsecureRegistries []string
	// Arch is the processor architecture, a GOARCH. Default: the host's.
	Arch string
	// Fresh contacts the registry even if the store has the image.
	Fresh bool
	// Progress, if not nil, is called with the progress, by one goroutine at a time.
	Progress func(Progress)
}

// Progress is the progress of a pull.
type Progress struct {
	// Step is "resolve", "fetch" or "done".
	Step string
	// Layer is the number of the current layer, from 1 to Layers.
	Layer, Layers int
	// Bytes is the number of compressed bytes read so far, of Total, over all layers.
	Bytes, Total int64
}

// Pull pulls an image from its registry, unless the store has it, and returns it. Concurrent pulls
// of one reference, in any process, are done once.
//
// Errors: NotFound, the registry has no such image; Denied, it needs other credentials or its
// address may not be dialled; Unsupported, it has no image for this architecture; TooLarge;
// Invalid, the image does not match its digests or is malformed; NoSpace; Timeout; Canceled;
// Unavailable.
func (s *Store) Pull(ctx context.Context, reference string, o PullOptions) (Image, error) {
	ref, err := ParseReference(reference)
	if err != nil {
		return Image{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.Time)
	defer cancel()
	key := sha256.Sum256([]byte(ref.Text))
	lock, err := waitLock(ctx, s.path(pullPrefix+hex.EncodeToString(key[:16])))
	if err != nil {
		return Image{}, failed("waiting for another pull of "+ref.Text, err)
	}
	defer lock.Close()
	if !o.Fresh {
		if i, err := s.Find(ref.Text); err == nil {
			return i, nil
		}
	}
	i, err := s.pull(ctx, ref, o)
	if err != nil && ctx.Err() != nil && sandbar.CodeOf(err) != sandbar.Invalid {
		err = failed("pulling "+ref.Text, ctx.Err())
	}
	return i, failed("pulling "+ref.Text, err)
}

// pull runs an unpacker that pulls an image.
func (s *Store) pull(ctx context.Context, ref Reference, o PullOptions) (Image, error) {
	login, err := o.credentials(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	b, err := s.newBuild()
	if err != nil {
		return Image{}, err
	}
	defer b.close()
	var there Image // set if the store has the image already
	var last Progress
	report := func(p Progress) {
		if last = p; o.Progress != nil {
			o.Progress(p)
		}
	}
	named := func(id, manifest string) namedBinding {
		return namedBinding{ref.Text, binding{ID: id, Manifest: manifest}}
	}
	op := operation{
		job: job{Kind: jobPull, Arch: cmp.Or(o.Arch, runtime.GOARCH), Reference: ref.Text, Credentials: login,
			Registries: o.Registries, Insecure: o.InsecureRegistries, Proxy: proxyVariables()},
		dial: registries{private: o.Registries, insecure: o.InsecureRegistries}.dial,
		known: func(id, manifest string) bool {
			if checkPulled(ref, id, manifest) != nil {
				return false
			}
			there, err = s.known(ctx, named(id, manifest))
			return err == nil
		},
		progress: report,
	}
	r, err := b.run(ctx, op)
	switch {
	case there.ID != "":
	case err != nil:
		return Image{}, err
	default:
		if err := checkPulled(ref, r.ID, r.Manifest); err != nil {
			return Image{}, err
		}
		if there, err = b.publish(ctx, r, op.job.Arch, named(r.ID, r.Manifest)); err != nil {
			return Image{}, err
		}
	}
	last.Step = "done"
	report(last)
	return there, nil
}

// checkPulled refuses digests that are malformed, or do not match the reference.
func checkPulled(ref Reference, id, manifest string) error {
	if idDir(id) == "" || idDir(manifest) == "" {
		return protocolViolation("its digests are " + sandbar.Quote(id, 80) + " and " + sandbar.Quote(manifest, 80))
	}
	if d := ref.Digest(); d != "" && d != manifest {
		return protocolViolation("the digest of its manifest is " + manifest)
	}
	return nil
}

// credentials returns the credentials of a registry, from the caller or from Docker's
// configuration, whose helper programs run here in the daemon.
func (o PullOptions) credentials(ctx context.Context, ref Reference) (*credentials, error) {
	if c := o.Credentials; c != nil {
		return &credentials{Username: c.User, Password: c.Password, RegistryToken: c.Token}, nil
	}
	a, err := authn.Resolve(ctx, authn.DefaultKeychain, ref.ref.Context())
	if err != nil || a == authn.Anonymous {
		return nil, err
	}
	c, err := authn.Authorization(ctx, a)
	if err != nil {
		return nil, err
	}
	return (*credentials)(c), nil
}

// proxyVariables are the variables of http.ProxyFromEnvironment. They may contain a password, so
// they are not part of the unpacker's environment.
func proxyVariables() map[string]string {
	proxy := map[string]string{}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUEST_METHOD"} {
		for _, name := range []string{name, strings.ToLower(name)} {
			if v, ok := os.LookupEnv(name); ok {
				proxy[name] = v
			}
		}
	}
	return proxy
}

// puller is one pull, in the unpacker.
type puller struct {
	*stage
	daemon    daemon
	ref       Reference
	job       *job
	hosts     registries
	transport *http.Transport
	progress  Progress
}

func newPuller(b *stage, d daemon, j *job) (*puller, error) {
	ref, err := ParseReference(j.Reference)
	if err != nil {
		return nil, err
	}
	hosts := registries{private: j.Registries, insecure: j.Insecure, stall: j.Limits.Stall}
	return &puller{stage: b, daemon: d, ref: ref, job: j, hosts: hosts, transport: hosts.transport(d.dial)}, nil
}

func (p *puller) report(step string) {
	p.progress.Step = step
	p.daemon.progress(p.progress)
}

func (p *puller) options(ctx context.Context) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(guardedTransport{p.hosts, p.transport}), remote.WithUserAgent("sandbar"),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: p.job.Arch}),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}),
		remote.WithAuth(p.job.Credentials.authenticator()),
	}
}

func (p *puller) pull(ctx context.Context) (*result, error) {
	p.report("resolve")
	ref, err := p.ref.with(p.hosts.isInsecure(p.ref.Registry()))
	if err != nil {
		return nil, err
	}
	desc, img, err := p.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	id, digest := manifest.Config.Digest.String(), desc.Digest.String()
	if idDir(id) == "" {
		return nil, malformed("its digest is not of SHA-256")
	}
	if err := p.daemon.known(id, digest); err != nil {
		return nil, err
	}
	if err := p.checkManifest(manifest); err != nil {
		return nil, err
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		return nil, digestError(err)
	}
	config, err := parseConfig(raw, p.job.Arch, len(manifest.Layers))
	if err != nil {
		return nil, err
	}
	if err := p.fetch(ctx, img, config); err != nil {
		return nil, err
	}
	return p.result(id, digest), nil
}

// resolve finds the image for this platform. The library checks the registry's answer against the
// reference's digest, if it has one.
func (p *puller) resolve(ctx context.Context, ref name.Reference) (*remote.Descriptor, v1.Image, error) {
	desc, err := remote.Get(ref, p.options(ctx)...)
	if err != nil {
		return nil, nil, digestError(err)
	}
	if !desc.MediaType.IsImage() && !desc.MediaType.IsIndex() {
		return nil, nil, &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
			Message: p.ref.Text + " is a " + sandbar.Quote(string(desc.MediaType), 80) + " and no image of this kind"}
	}
	img, err := desc.Image()
	if err != nil && desc.MediaType.IsIndex() && !isNetwork(err) {
		return nil, nil, p.noPlatform(desc, err)
	}
	return desc, img, err
}

// noPlatform lists the platforms that an index has instead of the requested one.
func (p *puller) noPlatform(desc *remote.Descriptor, cause error) error {
	index, err := desc.ImageIndex()
	if err != nil {
		return cause
	}
	m, err := index.IndexManifest()
	if err != nil {
		return cause
	}
	return missingPlatform(m, p.job.Arch)
}

func missingPlatform(m *v1.IndexManifest, arch string) error {
	var has []string
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS != "unknown" && len(has) < 20 {
			has = append(has, sandbar.Quote(d.Platform.String(), 40))
		}
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
		Message: "the image does not exist for linux/" + arch + "; it is for " + cmp.Or(strings.Join(has, ", "), "nothing that is named")}
}

// known returns the image if the store already has it, possibly under another name.
func (s *Store) known(ctx context.Context, n namedBinding) (Image, error) {
	if _, err := s.Find(n.ID); err != nil {
		return Image{}, err
	}
	if err := s.bind(ctx, n); err != nil {
		return Image{}, err
	}
	return s.Find(n.ID)
}

// bind adds names to an image of the store.
func (s *Store) bind(ctx context.Context, names ...namedBinding) error {
	return s.changeNames(ctx, func(table map[string]binding) error {
		for _, n := range names {
			if !exists(s.path(idDir(n.ID), infoName)) {
				return notInstalled(n.ID)
			}
			table[n.name] = n.binding
		}
		return nil
	})
}

// checkManifest checks a manifest before anything is fetched.
func (p *puller) checkManifest(m *v1.Manifest) error {
	if m.Config.Size < 0 || m.Config.Size > maxDocument {
		return malformed("its configuration would have " + number(m.Config.Size) + " bytes")
	}
	if len(m.Layers) > p.limits.Layers {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
			Message: "the image has " + number(int64(len(m.Layers))) + " layers; at most " + number(int64(p.limits.Layers)) + " are accepted"}
	}
	var total int64
	for _, l := range m.Layers {
		if l.Size < 0 || l.Size > p.limits.Bytes-total {
			return newBudget(p.limits).tooLarge()
		}
		total += l.Size
		if l.MediaType == types.DockerForeignLayer || len(l.URLs) > 0 {
			return &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
				Message: "the image has a layer that is somewhere else than in its registry, and is not fetched from there"}
		}
	}
	p.progress.Layers, p.progress.Total = len(m.Layers), total
	return nil
}

// fetch fetches and unpacks the layers.
func (p *puller) fetch(ctx context.Context, img v1.Image, config *config) error {
	p.image = config.image()
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for i, l := range layers {
		p.progress.Layer = i + 1
		if err := p.layer(ctx, l, config.RootFS.DiffIDs[i]); err != nil {
			return err
		}
	}
	return nil
}

// layer fetches one layer, and retries if the connection breaks.
func (p *puller) layer(ctx context.Context, l v1.Layer, diffID string) error {
	for try := 1; ; try++ {
		before := p.progress.Bytes
		err := p.tryLayer(ctx, l, diffID)
		if err == nil || try == layerTries || !isNetwork(err) || ctx.Err() != nil {
			return err
		}
		p.progress.Bytes = before
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * 200 * time.Millisecond):
		}
	}
}

func (p *puller) tryLayer(ctx context.Context, l v1.Layer, diffID string) error {
	body, err := l.Compressed() // the library verifies the digest while it is read
	if err != nil {
		return digestError(err)
	}
	defer body.Close()
	r := &progressReader{r: body, p: p}
	return addCompressed(ctx, p.stage, r, diffID)
}

// addCompressed unpacks a layer whose decompressed content must have this digest.
func addCompressed(ctx context.Context, b *stage, r io.Reader, diffID string) error {
	travel := countedReader{r, &b.budget.travel, b.budget.tooLarge}
	plain, err := decompress(travel)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	err = b.add(ctx, io.TeeReader(plain, sum), func() error {
		// The digest of the compressed stream is verified at its end.
		if _, err := io.Copy(io.Discard, travel); err != nil {
			return err
		}
		return checkDigest(sum, diffID)
	})
	return digestError(err)
}

func checkDigest(sum hash.Hash, want string) error {
	if got := idPrefix + hex.EncodeToString(sum.Sum(nil)); got != want {
		return malformed("a layer does not match its digest: it has " + got + " instead of " + sandbar.Quote(want, 80))
	}
	return nil
}

// digestError classifies errors of the library that only their text identifies: digest mismatches
// and refused redirects.
func digestError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sandbar.Error](err); ok {
		return err
	}
	for _, words := range []string{"error verifying", "does not match requested digest", "does not match expected size", "manifest digest", "unsupported hash"} {
		if strings.Contains(err.Error(), words) {
			return malformed("content from the registry does not match its digest")
		}
	}
	if strings.Contains(err.Error(), "SSRF protection") {
		return refused("to which it redirects")
	}
	return err
}

// isNetwork reports whether a retry may succeed.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) && sandbar.CodeOf(err) == sandbar.Internal ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// progressReader reports progress.
type progressReader struct {
	r io.Reader
	p *puller
	// time of the last report
	reported time.Time
}

func (m *progressReader) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.p.progress.Bytes += int64(n)
	if now := time.Now(); err == io.EOF || now.Sub(m.reported) > 100*time.Millisecond {
		m.reported = now
		m.p.report("fetch")
	}
	return n, err
}
