package image

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbar-dev/sandbar"
)

// PushOptions are the parameters of Push.
type PushOptions struct {
	// Tag is the tag of the image if the reference has none.
	Tag string
	// InsecureRegistries are hosts, or host:port, that are used without TLS.
	InsecureRegistries []string
}

const (
	// pushBound bounds a whole push, pushStall the time in which a registry must answer a request.
	pushBound = 10 * time.Minute
	pushStall = time.Minute
)

// Push pushes an image that this process has built itself to a registry, with the credentials of
// Docker's configuration, and returns its name with its digest. The registry of the reference may
// have a non-public address, since the operator has named it.
//
// Errors: Invalid, reference is not a name with or without a tag; Denied, the registry needs other
// credentials, or has no TLS and is not among InsecureRegistries; Timeout; Canceled; Unavailable.
func Push(ctx context.Context, img v1.Image, reference string, o PushOptions) (string, error) {
	if o.Tag != "" && !strings.ContainsAny(path.Base(reference), ":@") {
		reference += ":" + o.Tag
	}
	ref, err := ParseReference(reference)
	if err != nil {
		return "", err
	}
	if ref.Digest() != "" {
		return "", &sandbar.Error{Code: sandbar.Invalid, Field: "image", Message: "the name " + sandbar.Quote(reference, 100) + " has a digest, but the digest follows from the image",
			Fix: "write [REGISTRY/]NAME[:TAG]"}
	}
	hosts := registries{private: slices.Concat([]string{ref.Registry()}, o.InsecureRegistries), insecure: o.InsecureRegistries, stall: pushStall}
	to, err := ref.with(hosts.isInsecure(ref.Registry()))
	if err != nil {
		return "", err
	}
	digest, err := img.Digest()
	if err != nil {
		return "", failed("pushing "+ref.Text, err)
	}
	ctx, cancel := context.WithTimeout(ctx, pushBound)
	defer cancel()
	t := hosts.transport(hosts.dial)
	defer t.CloseIdleConnections()
	err = remote.Write(to, img, remote.WithContext(ctx), remote.WithTransport(guardedTransport{hosts, t}), remote.WithUserAgent("sandbar"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return ref.ref.Context().Name() + "@" + digest.String(), failed("pushing "+ref.Text, err)
}
