package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/debian"
)

// kernelPackages are the kernel packages to try, best first. The cloud kernels of Debian are small
// and, from Linux 6.12, have the virtio bus, ports and vmgenid built in. Debian 12 has 6.12 beside
// its own 6.1, which lacks vmgenid.
var kernelPackages = []string{"linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64", "linux-image-virtual", "linux-image-amd64"}

// Bounds of a download.
const (
	maxPackage    = 512 << 20 // bytes, compressed
	maxContents   = 2 << 30   // bytes, uncompressed
	fetchTimeout  = 15 * time.Minute
	aptTimeout    = time.Minute
	progressBytes = 1 << 20
)

// aptKernel downloads the kernel's package and unpacks what Setup needs of it. The package is not
// installed.
func aptKernel(ctx context.Context, o SetupOptions) (source, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return source{}, &sandbar.Error{Code: sandbar.Unsupported, Message: "there is no apt-get to find a kernel package with", Fix: "install a kernel package"}
	}
	names := kernelPackages
	if o.Package != "" {
		names = []string{o.Package}
	}
	for _, name := range names {
		image, err := concretePackage(ctx, name)
		if err != nil {
			return source{}, err
		}
		if image == "" {
			continue
		}
		return fetchKernel(ctx, o, image)
	}
	return source{}, &sandbar.Error{Code: sandbar.Unsupported, Message: "apt has no package " + strings.Join(names, " or "),
		Fix: "as root: apt-get update"}
}

// concreteImage matches the name of a package that contains a kernel, and its release.
var concreteImage = regexp.MustCompile(`^linux-image-(?:unsigned-)?([0-9]+\.[0-9]+\.[0-9].*)$`)

// concretePackage returns the package with the kernel that a package is or depends on, "" if apt
// knows none.
func concretePackage(ctx context.Context, name string) (string, error) {
	if concreteImage.MatchString(name) {
		return name, nil
	}
	out, err := apt(ctx, "apt-cache", "depends", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", name)
	if err != nil {
		return "", ctx.Err() // apt-cache fails for an unknown package
	}
	for line := range strings.Lines(out) {
		if _, word, ok := strings.Cut(line, "Depends: "); ok && concreteImage.MatchString(strings.TrimSpace(word)) {
			return strings.TrimSpace(word), nil
		}
	}
	return "", nil
}

// fetchKernel downloads a kernel's package, and on Ubuntu that of its modules.
func fetchKernel(ctx context.Context, o SetupOptions, image string) (source, error) {
	files, err := fetchPackage(ctx, o, image)
	if err != nil {
		return source{}, err
	}
	s := source{name: image}
	for name, content := range files {
		if strings.HasPrefix(name, "boot/vmlinuz-") {
			s.image = content
		}
	}
	if s.image == nil {
		return source{}, errors.New("package " + image + " has no boot/vmlinuz-RELEASE")
	}
	release := concreteImage.FindStringSubmatch(image)[1]
	for _, more := range []string{"linux-modules-" + release, "linux-modules-extra-" + release} {
		s.modules = treeOf(files)
		if _, err := selectModules(s.modules); err == nil {
			return s, nil
		}
		if p, err := locate(ctx, more); err != nil || p.uri == "" {
			continue // not on Debian
		}
		others, err := fetchPackage(ctx, o, more)
		if err != nil {
			return source{}, err
		}
		maps.Copy(files, others)
	}
	s.modules = treeOf(files)
	return s, nil
}

// treeOf returns the modules among the files of packages.
func treeOf(files map[string][]byte) moduleTree {
	return moduleTree{files: slices.Sorted(maps.Keys(files)), read: func(name string) ([]byte, error) { return files[name], nil }}
}

// kernelFile reports whether Setup reads a file of a package.
func kernelFile(name string) bool {
	name = strings.TrimPrefix(name, "usr/")
	return strings.HasPrefix(name, "boot/vmlinuz-") || strings.HasPrefix(name, "lib/modules/") && (strings.Contains(name, ".ko") || strings.HasSuffix(name, "/modules.builtin"))
}

// location is the place of a package and its checksum, which apt has from an index that it has
// verified.
type location struct {
	uri, sha256 string
	size        int64
}

// printedURI matches a line of apt-get --print-uris.
var printedURI = regexp.MustCompile(`(?m)^'([^']+)' \S+ ([0-9]+) SHA256:([0-9a-f]{64})$`)

// locate asks apt for a package's location.
func locate(ctx context.Context, name string) (location, error) {
	out, err := apt(ctx, "apt-get", "download", "--print-uris", name)
	if err != nil {
		return location{}, err
	}
	m := printedURI.FindStringSubmatch(out)
	if m == nil {
		return location{}, errors.New("apt-get names no location with a SHA-256 sum for package " + name)
	}
	size, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil || size > maxPackage {
		return location{}, fmt.Errorf("package %s has %s bytes; at most %d are allowed", name, m[2], int64(maxPackage))
	}
	return location{uri: m[1], size: size, sha256: m[3]}, nil
}

// apt runs a program of apt and returns its output.
func apt(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, aptTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		if i := strings.LastIndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, text)
	}
	return out.String(), nil
}

// fetchPackage downloads a package, verifies its checksum and returns its files.
func fetchPackage(ctx context.Context, o SetupOptions, name string) (map[string][]byte, error) {
	at, err := locate(ctx, name)
	if err != nil {
		return nil, &sandbar.Error{Code: sandbar.Unsupported, Message: "apt cannot locate the package " + name, Err: err, Fix: "as root: apt-get update"}
	}
	client := debian.Client(fetchTimeout)
	defer client.CloseIdleConnections()
	var errs []error
	for _, uri := range at.candidates() {
		b, err := download(ctx, client, uri, at, func(done int64) { o.report(Progress{Step: "fetching " + name, Done: done, Total: at.size}) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files, err := debian.Files(b, maxContents, kernelFile)
		if err != nil {
			return nil, fmt.Errorf("unpacking %s: %w", name, err)
		}
		return files, nil
	}
	return nil, &sandbar.Error{Code: sandbar.Unavailable, Message: "the package " + name + " could not be downloaded", Err: errors.Join(errs...),
		Fix: "as root: apt-get update; or check the network"}
}

// candidates returns the URIs to try: below the mirror of debian.MirrorVariable, then apt's.
func (l location) candidates() []string {
	var all []string
	if mirror := os.Getenv(debian.MirrorVariable); mirror != "" {
		if i := strings.Index(l.uri, "/pool/"); i >= 0 {
			all = append(all, strings.TrimRight(mirror, "/")+l.uri[i:])
		}
	}
	return append(all, l.uri)
}

// download returns the content of a URI after comparing it with size and checksum.
func download(ctx context.Context, client *http.Client, uri string, at location, progress func(int64)) ([]byte, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("apt's source is not an HTTP mirror: " + u.Scheme)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", u.Redacted(), resp.Status)
	}
	var b bytes.Buffer
	b.Grow(int(at.size))
	for {
		n, err := io.CopyN(&b, resp.Body, progressBytes)
		progress(int64(b.Len()))
		if int64(b.Len()) > at.size {
			return nil, fmt.Errorf("GET %s: more than the %d bytes of the package", u.Redacted(), at.size)
		}
		if err == io.EOF && n < progressBytes {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if sum := sha256.Sum256(b.Bytes()); hex.EncodeToString(sum[:]) != at.sha256 {
		return nil, fmt.Errorf("GET %s: the package has another SHA-256 sum than in apt's index", u.Redacted())
	}
	return b.Bytes(), nil
}
