package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sandbar-dev/sandbar"
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

// size formats a number of bytes.
func size(n int64) string {
	for _, u := range []struct {
		name string
		of   int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of && n%u.of == 0 {
			return number(n/u.of) + " " + u.name
		}
	}
	return number(n) + " bytes"
}

// malformed returns the error for malformed content.
func malformed(what string) error {
	return &sandbar.Error{Code: sandbar.Invalid, Field: "image", Message: "the image is malformed: " + what,
		Fix: "do not use this image; it was built by a broken tool or is an attack"}
}

// failed converts the error of a failed pull or import.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*sandbar.Error](err); ok {
		return own // libraries have wrapped it in text without further information
	}
	e := &sandbar.Error{Code: sandbar.Unavailable, Field: "image", Message: doing, Err: err}
	if t, ok := errors.AsType[*transport.Error](err); ok {
		return registryError(e, t)
	}
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		e.Code = sandbar.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = sandbar.Timeout
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Fix = sandbar.NoSpace, "make room where images are kept, or remove some with `sandbar images rm`"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e.Code = sandbar.Denied
	case errors.As(err, &network):
		e.Fix = "check that the registry can be reached from here, and try again"
	}
	return e
}

// registryError classifies a registry's error. Its text is untrusted, so it is quoted and cut.
func registryError(e *sandbar.Error, t *transport.Error) error {
	e.Err = nil
	said := http.StatusText(t.StatusCode)
	if len(t.Errors) > 0 {
		said = string(t.Errors[0].Code) + " " + t.Errors[0].Message
	}
	e.Message += ": the registry answered " + strconv.Itoa(t.StatusCode) + " " + sandbar.Quote(said, 200)
	switch t.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Code, e.Fix = sandbar.Denied, "log in to the registry (docker login), or check the name: registries answer so for images that do not exist"
	case http.StatusNotFound:
		e.Code, e.Fix = sandbar.NotFound, "check the name and the tag"
	case http.StatusTooManyRequests:
		e.Code, e.Fix = sandbar.Exhausted, "try again later, or log in to the registry"
	}
	return e
}
