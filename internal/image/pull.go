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

// Credentials log in to a registry.
type Credentials struct {
	User, Password string
	// Token is a bearer token, instead of User and Password.
	Token string
}

// PullOptions say how an image is fetched.
type PullOptions struct {
	// Credentials, if set, are used instead of those of Docker's configuration.
	Credentials *Credentials
	// Registries are hosts, or host:port, that may have addresses which are not
	// public. InsecureRegistries may too, and are spoken to without TLS.
	Registries, InsecureRegistries []string
	// Arch is the processor, as Go calls it. Default: this one's.
	Arch string
	// Fresh asks the registry also when the store has the image.
	Fresh bool
	// Progress, if set, is told how far the pull is, from one goroutine.
	Progress func(Progress)
}

// Progress is how far a pull is.
type Progress struct {
	// Step is "resolve", "fetch" or "done".
	Step string
	// Layer is the number of the layer being fetched, from 1, of Layers.
	Layer, Layers int
	// Bytes of all layers have been read of Total, as they travel.
	Bytes, Total int64
}

// Pull fetches an image from its registry, unless the store has it, and returns
// it. Pulls of one reference at the same time, by whatever process, are one.
//
// Errors: NotFound when the registry has no such image, Denied when it wants
// other credentials or may not be dialled, Unsupported when it has none for this
// processor, TooLarge, Invalid for an image that is not what its digests say or
// is otherwise malformed, NoSpace, Timeout, Canceled, Unavailable.
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
	p := newPuller(s, ref, o)
	defer p.transport.CloseIdleConnections()
	i, err := p.pull(ctx)
	if err != nil && ctx.Err() != nil && sandbar.CodeOf(err) != sandbar.Invalid {
		err = failed("pulling "+ref.Text, ctx.Err())
	}
	return i, failed("pulling "+ref.Text, err)
}

// puller is one pull.
type puller struct {
	s         *Store
	ref       Reference
	o         PullOptions
	hosts     registries
	transport *http.Transport
	progress  Progress
}

func newPuller(s *Store, ref Reference, o PullOptions) *puller {
	o.Arch = cmp.Or(o.Arch, runtime.GOARCH)
	hosts := registries{private: o.Registries, insecure: o.InsecureRegistries, stall: s.limits.Stall}
	return &puller{s: s, ref: ref, o: o, hosts: hosts, transport: hosts.transport()}
}

func (p *puller) report(step string) {
	p.progress.Step = step
	if p.o.Progress != nil {
		p.o.Progress(p.progress)
	}
}

func (p *puller) options(ctx context.Context) []remote.Option {
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(guarded{p.hosts, p.transport}), remote.WithUserAgent("sandbar"),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: p.o.Arch}),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}),
	}
	if c := p.o.Credentials; c != nil {
		return append(options, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: c.User, Password: c.Password, RegistryToken: c.Token})))
	}
	return append(options, remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

func (p *puller) pull(ctx context.Context) (Image, error) {
	p.report("resolve")
	ref, err := p.ref.with(p.hosts.isInsecure(p.ref.Registry()))
	if err != nil {
		return Image{}, err
	}
	desc, img, err := p.resolve(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return Image{}, err
	}
	name := namedBinding{p.ref.Text, binding{ID: manifest.Config.Digest.String(), Manifest: desc.Digest.String()}}
	if i, err := p.known(ctx, name); err == nil {
		p.report("done")
		return i, nil
	}
	if err := p.checkManifest(manifest); err != nil {
		return Image{}, err
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		return Image{}, digestError(err)
	}
	config, err := parseConfig(raw, p.o.Arch, len(manifest.Layers))
	if err != nil {
		return Image{}, err
	}
	return p.build(ctx, img, config, name)
}

// resolve finds the image for this platform. The registry's answer is checked
// against the digest, if the reference has one, by the library.
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

// noPlatform tells which platforms an index has instead of the one asked for.
func (p *puller) noPlatform(desc *remote.Descriptor, cause error) error {
	index, err := desc.ImageIndex()
	if err != nil {
		return cause
	}
	m, err := index.IndexManifest()
	if err != nil {
		return cause
	}
	return missingPlatform(m, p.o.Arch)
}

func missingPlatform(m *v1.IndexManifest, arch string) error {
	var has []string
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS != "unknown" && len(has) < 20 {
			has = append(has, sandbar.Quote(d.Platform.String(), 40))
		}
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "image",
		Message: "the image is not there for linux/" + arch + "; it is for " + cmp.Or(strings.Join(has, ", "), "nothing that is named")}
}

// known returns the image if the store has it already, perhaps under another
// name.
func (p *puller) known(ctx context.Context, n namedBinding) (Image, error) {
	if idDir(n.ID) == "" {
		return Image{}, hostile("its digest is not of SHA-256")
	}
	if _, err := p.s.Find(n.ID); err != nil {
		return Image{}, err
	}
	if err := p.s.bind(ctx, n); err != nil {
		return Image{}, err
	}
	return p.s.Find(n.ID)
}

// bind gives a name to an image that is in the store.
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

// checkManifest refuses by what the manifest says, before anything is fetched.
func (p *puller) checkManifest(m *v1.Manifest) error {
	if m.Config.Size < 0 || m.Config.Size > maxDocument {
		return hostile("its configuration would have " + number(m.Config.Size) + " bytes")
	}
	if len(m.Layers) > p.s.limits.Layers {
		return &sandbar.Error{Code: sandbar.TooLarge, Field: "image",
			Message: "the image has " + number(int64(len(m.Layers))) + " layers; at most " + number(int64(p.s.limits.Layers)) + " are accepted"}
	}
	var total int64
	for _, l := range m.Layers {
		if l.Size < 0 || l.Size > p.s.limits.Bytes-total {
			return newBudget(p.s.limits).tooLarge()
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

// build fetches and unpacks the layers.
func (p *puller) build(ctx context.Context, img v1.Image, config *config, n namedBinding) (Image, error) {
	b, err := p.s.newBuild()
	if err != nil {
		return Image{}, err
	}
	defer b.close()
	b.image = config.image()
	layers, err := img.Layers()
	if err != nil {
		return Image{}, err
	}
	for i, l := range layers {
		p.progress.Layer = i + 1
		if err := p.layer(ctx, b, l, config.RootFS.DiffIDs[i]); err != nil {
			return Image{}, err
		}
	}
	done, err := b.publish(ctx, n.ID, n)
	if err == nil {
		p.report("done")
	}
	return done, err
}

// layer fetches one layer, again if the connection breaks.
func (p *puller) layer(ctx context.Context, b *build, l v1.Layer, diffID string) error {
	for try := 1; ; try++ {
		before := p.progress.Bytes
		err := p.tryLayer(ctx, b, l, diffID)
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

func (p *puller) tryLayer(ctx context.Context, b *build, l v1.Layer, diffID string) error {
	body, err := l.Compressed() // it is checked against its digest as it is read
	if err != nil {
		return digestError(err)
	}
	defer body.Close()
	r := &metered{r: body, p: p}
	return addCompressed(ctx, b, r, diffID)
}

// addCompressed unpacks a layer that must have this digest when decompressed.
func addCompressed(ctx context.Context, b *build, r io.Reader, diffID string) error {
	travel := counted{r, &b.budget.travel, b.budget.tooLarge}
	plain, err := decompress(travel)
	if err != nil {
		return err
	}
	defer plain.Close()
	sum := sha256.New()
	err = b.add(ctx, io.TeeReader(plain, sum), func() error {
		// The digest of what travels is known only when all of it has been read.
		if _, err := io.Copy(io.Discard, travel); err != nil {
			return err
		}
		return checkDigest(sum, diffID)
	})
	return digestError(err)
}

func checkDigest(sum hash.Hash, want string) error {
	if got := idPrefix + hex.EncodeToString(sum.Sum(nil)); got != want {
		return hostile("a layer is not what its digest says: it has " + got + " instead of " + sandbar.Quote(want, 80))
	}
	return nil
}

// digestError says of content that is not what its digest says, and of a
// redirect to where nobody goes, that they are refused: the library tells that in
// words only.
func digestError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sandbar.Error](err); ok {
		return err
	}
	for _, words := range []string{"error verifying", "does not match requested digest", "does not match expected size", "manifest digest", "unsupported hash"} {
		if strings.Contains(err.Error(), words) {
			return hostile("what the registry sent is not what its digest says")
		}
	}
	if strings.Contains(err.Error(), "SSRF protection") {
		return refused("to which it redirects")
	}
	return err
}

// isNetwork reports whether trying again may help.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) && sandbar.CodeOf(err) == sandbar.Internal ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// metered tells of progress.
type metered struct {
	r io.Reader
	p *puller
	// told is when progress was last told of.
	told time.Time
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.p.progress.Bytes += int64(n)
	if now := time.Now(); err == io.EOF || now.Sub(m.told) > 100*time.Millisecond {
		m.told = now
		m.p.report("fetch")
	}
	return n, err
}
