package drivertest

import (
	"context"
	"sync"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// library is a driver.Images with one image, for which the host's programs stand in. It counts open
// images.
type library struct {
	mu           sync.Mutex
	opened, open int
	twice        bool // an image was closed twice
}

// likeHost is the name of library's image.
const likeHost = "like-host"

// Open implements driver.Images.
func (l *library) Open(_ context.Context, name string) (driver.Image, error) {
	if name != likeHost {
		return driver.Image{}, &sandbar.Error{Code: sandbar.NotFound, Field: "image", Message: "there is no image " + sandbar.Quote(name, 40)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
	l.open++
	closed := false
	return driver.Image{ID: likeHost, Close: func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.twice = l.twice || closed
		closed = true
		l.open--
	}}, nil
}

func (l *library) look() (opened, open int, twice bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opened, l.open, l.twice
}

// imageCases test the use of driver.Host.Images. To test sandboxes of a real image, run the suite
// with a Harness.Spec that names it.
func imageCases() []testCase {
	return []testCase{
		{name: "images", run: func(c *C) {
			images := &library{}
			h := c.s.host(c.dir)
			h.Images = images
			d, err := c.s.h.New(h)
			c.ok(err, "New with images")
			defer closeDriver(c, d)
			create := func(name string) (driver.Sandbox, error) {
				spec := c.spec()
				spec.Image = name
				return d.Create(c.ctx, c.newID(), spec)
			}
			b, err := create("no-such-image")
			if err == nil {
				c.destroy(b)
			}
			c.code(err, "Create with an image that does not exist", sandbar.NotFound, sandbar.Unsupported)
			switch b, err = create(likeHost); {
			case err == nil:
				c.likeHost(b, images)
			case sandbar.CodeOf(err) != sandbar.Unsupported && sandbar.CodeOf(err) != sandbar.NotFound:
				c.Errorf("Create with an image for which the host stands in: %v", err)
			}
			spec := c.spec()
			spec.Image, spec.Env = likeHost, map[string]string{"a=b": "c"}
			if b, err := d.Create(c.ctx, c.newID(), spec); err == nil {
				c.destroy(b)
			}
			if _, open, twice := images.look(); open != 0 || twice {
				c.Errorf("%d images are open after all sandboxes were destroyed; one closed twice: %v", open, twice)
			}
		}},
	}
}

// likeHost tests a sandbox of an image that the driver accepts.
func (c *C) likeHost(b driver.Sandbox, images *library) {
	if opened, _, _ := images.look(); opened != 1 {
		c.Errorf("for one sandbox the image was opened %d times", opened)
	}
	c.exited(c.sh(b, "exit 7"), 7, "a program on an image for which the host stands in")
	c.destroy(b)
	c.destroy(b)
}
