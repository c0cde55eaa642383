package docker

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// image is the image of a container.
type image struct {
	id      string   // the engine's id
	env     []string // "K=V", from the image's configuration
	volumes []string // its declared volumes
	// an image of Sandbar's store, held until the sandbox is gone; nil for an image of the engine
	stored *driver.Image
}

func (i *image) close() {
	if i.stored != nil {
		i.stored.Close()
		i.stored = nil
	}
}

// storeRepository is the repository name on the engine for images of Sandbar's store. The tag
// identifies the content.
const storeRepository = "sandbar/image"

// Preset implements driver.Presets: an image of the engine, if it exists.
func (d *Driver) Preset(ctx context.Context, name string) (image, ref string, ok bool) {
	ref = d.opt.preset(name)
	if ref == "" {
		return "", "", false
	}
	if _, found, err := d.engine.image(ctx, ref); err != nil || !found {
		return "", "", false
	}
	if ref == d.opt.image {
		return sandbar.ImageHost, ref, true
	}
	return ref, ref, true
}

// openImage finds the image of a Spec: the operator's default if it names none; an image of the
// engine that the operator allows; one of Sandbar's store, which is sent to the engine if missing
// there; or, for a preset that the store lacks, the engine's image for it. It pulls nothing: see
// pullMissing.
func (d *Driver) openImage(ctx context.Context, name string) (image, error) {
	switch {
	case name == "" || name == sandbar.ImageHost:
		return d.engineImage(ctx, d.opt.image)
	case slices.Contains(d.opt.images, name), slices.Contains(d.opt.images, anyImage), d.opt.isPreset(name):
		return d.engineImage(ctx, name)
	case d.images == nil && d.opt.preset(name) != "":
		return d.engineImage(ctx, d.opt.preset(name))
	case d.images == nil:
		return image{}, &sandbar.Error{Code: sandbar.NotFound, Field: "image",
			Message: "image " + sandbar.Quote(name, 100) + " is not known; there is \"" + sandbar.ImageHost + "\", which is " + sandbar.Quote(d.opt.image, 100) +
				", and what the option " + optionImages + " of the driver docker names",
			Fix: "use the image \"" + sandbar.ImageHost + "\", or add it to that option"}
	}
	held, err := d.images.Open(ctx, name)
	if preset := d.opt.preset(name); preset != "" && (err == nil && held.Dir == "" || sandbar.CodeOf(err) == sandbar.NotFound) {
		if err == nil {
			held.Close()
		}
		return d.engineImage(ctx, preset)
	}
	if err != nil {
		return image{}, err
	}
	i, err := d.storeImage(ctx, &held)
	if err != nil {
		held.Close()
		return image{}, err
	}
	i.stored = &held
	return i, nil
}

// engineImage returns an image of the engine.
func (d *Driver) engineImage(ctx context.Context, ref string) (image, error) {
	i, found, err := d.engine.image(ctx, ref)
	if err == nil && !found {
		err = &sandbar.Error{Code: sandbar.NotFound, Field: "image",
			Message: "the Docker Engine has no image " + sandbar.Quote(ref, 100), Fix: "docker pull " + ref}
	}
	return i, err
}

// storeImage returns an image of Sandbar's store on the engine.
func (d *Driver) storeImage(ctx context.Context, held *driver.Image) (image, error) {
	if held.Dir == "" {
		return d.engineImage(ctx, d.opt.image)
	}
	ref := storeReference(held.ID)
	// One at a time: a second sandbox of the same image waits for the first transfer.
	select {
	case d.importing <- struct{}{}:
		defer func() { <-d.importing }()
	case <-ctx.Done():
		return image{}, sandbar.Errorf(sandbar.CodeOfContext(ctx), "waiting for the transfer of another image: %w", ctx.Err())
	}
	i, found, err := d.engine.image(ctx, ref)
	if err != nil || found {
		return i, err
	}
	if err := d.engine.importTree(ctx, held.Dir, ref); err != nil {
		return image{}, err
	}
	return d.engineImage(ctx, ref)
}

// storeReference returns the reference on the engine for an image of Sandbar's store.
func storeReference(id string) string {
	tag := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, id)
	return storeRepository + ":" + tag[:min(len(tag), 127)]
}

// image looks up an image on the engine.
func (e *engine) image(ctx context.Context, ref string) (i image, found bool, err error) {
	err = e.call(ctx, quickBound, "looking for the image "+sandbar.Quote(ref, 100), func(ctx context.Context) error {
		r, err := e.api.ImageInspect(ctx, ref)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		found, i.id = true, r.ID
		if r.Config != nil {
			i.env = r.Config.Env
			for dir := range r.Config.Volumes {
				i.volumes = append(i.volumes, dir)
			}
			slices.Sort(i.volumes)
		}
		return nil
	})
	return i, found, err
}

// pull makes the engine pull an image. Unavailable: it cannot.
func (e *engine) pull(ctx context.Context, ref string) error {
	err := e.call(ctx, copyBound, "pulling the image "+sandbar.Quote(ref, 100), func(ctx context.Context) error {
		answer, err := e.api.ImagePull(ctx, ref, client.ImagePullOptions{})
		if err != nil {
			return err
		}
		defer answer.Close()
		return importAnswer(answer)
	})
	if err == nil {
		return nil
	}
	failed := *sandbar.AsError(err)
	failed.Code, failed.Field = sandbar.Unavailable, "image"
	failed.Fix = "see what \"docker pull " + ref + "\" says, or set the option " + optionPull + " of the driver docker to \"never\""
	return &failed
}

// importTree sends a directory tree to the engine as an image.
func (e *engine) importTree(ctx context.Context, dir, ref string) error {
	return e.call(ctx, copyBound, "sending an image to the engine", func(ctx context.Context) error {
		r, w := io.Pipe()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			w.CloseWithError(writeTree(w, dir))
		}()
		defer func() {
			_ = r.Close()
			<-sent
		}()
		answer, err := e.api.ImageImport(ctx, client.ImageImportSource{Source: r, SourceName: "-"}, ref, client.ImageImportOptions{})
		if err != nil {
			return err
		}
		defer answer.Close()
		return importAnswer(answer)
	})
}
