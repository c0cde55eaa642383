package driver

import "context"

// Images is where a driver gets root file systems other than sandbar.ImageHost
// from. The platform implements it; a driver only opens what it was told.
type Images interface {
	// Open finds an image that is installed on this host and keeps it from
	// being removed until Close. It never fetches one. NotFound for a name that
	// nobody knows, that the operator has not allowed, or that is known and not
	// installed.
	Open(ctx context.Context, name string) (Image, error)
}

// Image is the root file system of an image, opened.
type Image struct {
	// ID names the content: two images of one ID are the same, byte for byte.
	ID string
	// Dir is the absolute path of the image's root on the host. All of it
	// belongs to the daemon's user and is never written, neither by the
	// platform nor by a driver; a sandbox gets a layer of its own above it.
	// Names in it, and the links above all, are somebody else's choice: nothing
	// below Dir may be resolved on the host.
	//
	// "" stands for sandbar.ImageHost: the name is that of an image which is
	// not installed, and for which the host's own programs are good enough.
	Dir string
	// Close lets the image be removed again. It is never nil, may be called
	// once, and not before the sandbox is gone.
	Close func()
}
