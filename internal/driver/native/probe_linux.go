package native

import (
	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/hostenv"
)

// The driver's options.
const (
	optionPaths = "paths" // additional directories of the host for sandboxes
	optionReuse = "reuse" // what sandboxes of single programs share in succession
)

// options are the parsed options of the driver.
type options struct {
	extra []string
	slots bool // default: true
}

// parseOptions parses the driver's options. Invalid: one is unknown or malformed.
func parseOptions(given map[string]string) (o options, err error) {
	o.slots = true
	for k, v := range given {
		switch k {
		case optionPaths:
			o.extra, err = hostenv.ParsePaths(v)
		case optionReuse:
			o.slots, err = parseReuse(v)
		default:
			err = &sandbar.Error{Code: sandbar.Invalid, Field: "drivers.native." + k,
				Message: "the native driver has no option " + sandbar.Quote(k, 40) + "; it has: " + optionPaths + ", " + optionReuse}
		}
		if err != nil {
			return options{}, err
		}
	}
	return o, nil
}

// parseReuse parses the option optionReuse.
func parseReuse(value string) (slots bool, err error) {
	switch value {
	case "none":
		return false, nil
	case "slots":
		return true, nil
	}
	return false, &sandbar.Error{Code: sandbar.Invalid, Field: "drivers.native." + optionReuse,
		Message: "unknown value " + sandbar.Quote(value, 40) + "; allowed: \"none\" and \"slots\""}
}
