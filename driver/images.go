package driver

import "context"

// Images provides root file systems other than sandbar.ImageHost. The platform implements it.
type Images interface {
	// Open opens an image that is installed on this host, and prevents its removal until Close. It
	// never downloads an image. NotFound: the name is unknown, not allowed by the operator, or not
	// installed.
	Open(ctx context.Context, name string) (Image, error)
}

// Image is an open root file system.
type Image struct {
	// ID identifies the content: images with the same ID are identical byte for byte.
	ID string
	// Dir is the absolute path of the image's root directory on the host. It belongs to the
	// daemon's user. Neither the platform nor a driver writes to it: a sandbox has its own layer
	// above it. The image's author chose the names and symbolic links in it, so no path below Dir
	// may be resolved on the host.
	//
	// "" stands for sandbar.ImageHost: the image is not installed, and the operator lets the host's
	// own programs replace it.
	Dir string
	// Close allows the removal of the image again. It is never nil. It may be called once, after
	// the sandbox is destroyed.
	Close func()
}
