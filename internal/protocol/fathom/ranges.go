package fathom

import (
	"fmt"
	"math"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/client/fathom/wire"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// intRange is an inclusive range of integers.
type intRange struct{ min, max int64 }

func (s intRange) String() string { return fmt.Sprintf("%d to %d", s.min, s.max) }

func (s intRange) holds(n int64) bool { return n >= s.min && n <= s.max }

// ranges are the allowed values of requests: the operator's limits in the protocol's units.
type ranges struct {
	languages *lang.Catalogue
	available func() []string // the languages to list in a refusal; nil: all

	timeoutMS, memoryMB, cpuShares, outputBytes intRange
	// defaultShares is the default weight. A request for that same weight counts as unset.
	defaultShares int64

	maxCode, maxEnv, maxStdin int64
}

// newRanges converts the operator's limits. Ranges are rounded inwards to whole units of the
// protocol, so that the engine accepts every value in them.
func newRanges(def, low, high sandbar.Limits, languages *lang.Catalogue, o Options) *ranges {
	return &ranges{
		languages:   languages,
		timeoutMS:   newSpan(int64(low.Timeout), int64(high.Timeout), int64(time.Millisecond)),
		memoryMB:    newSpan(low.Memory, high.Memory, mebibyte),
		cpuShares:   newSpan(low.CPUShares, high.CPUShares, 1),
		outputBytes: newSpan(low.Output, high.Output, 1),

		defaultShares: def.CPUShares,

		maxCode: o.MaxCode, maxEnv: o.MaxEnv, maxStdin: o.MaxStdin,
	}
}

func newSpan(low, high, unit int64) intRange {
	if high == sandbar.Unlimited {
		high = math.MaxInt64
	}
	// 0 and negative values have other meanings in the engine ("unset", "unlimited").
	return intRange{max(1, ceilDiv(low, unit)), high / unit}
}

func (r *ranges) checkLanguage(name string) *refusal {
	_, err := r.languages.Find(name)
	if err == nil {
		return nil
	}
	if r.available != nil {
		err = lang.Unknown(name, r.available())
	}
	return &refusal{code: wire.CodeLanguageNotSupported, message: sandbar.AsError(err).Error()}
}

// maxFrame is the length of the longest valid request, in bytes: all its strings as six-byte
// escapes, plus room for the rest.
func (r *ranges) maxFrame() int64 {
	const rest = 64 << 10 // names, numbers, id, white space, ignored fields
	return 6*(r.maxCode+r.maxEnv+r.maxStdin) + rest
}

// quote quotes and shortens a client's text for a message.
func quote(s string) string { return sandbar.Quote(s, 64) }
