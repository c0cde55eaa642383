package fathom

import (
	"fmt"
	"math"
	"time"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/engine/lang"
)

// span is a range of integers, both ends included.
type span struct{ min, max int64 }

func (s span) String() string { return fmt.Sprintf("%d to %d", s.min, s.max) }

func (s span) holds(n int64) bool { return n >= s.min && n <= s.max }

// ranges is what a request may ask for: the operator's limits, in the
// protocol's units.
type ranges struct {
	languages *lang.Catalogue
	available func() []string // the languages to name in a refusal; nil: all

	timeoutMS, memoryMB, cpuShares, outputBytes span
	// defaultShares is what a client that names no weight gets. Naming that
	// same weight is no more of a wish than leaving it out.
	defaultShares int64

	maxCode, maxEnv, maxStdin int64
}

// newRanges converts the operator's limits. Where the engine rounds to a finer
// unit the range shrinks to whole units of the protocol, so that every value
// in it is one that the engine accepts.
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

func newSpan(low, high, unit int64) span {
	if high == sandbar.Unlimited {
		high = math.MaxInt64
	}
	// Zero and less mean something else to the engine ("unset", "unlimited").
	return span{max(1, ceilDiv(low, unit)), high / unit}
}

func (r *ranges) checkLanguage(name string) *refusal {
	_, err := r.languages.Find(name)
	if err == nil {
		return nil
	}
	if r.available != nil {
		err = lang.Unknown(name, r.available())
	}
	return &refusal{code: CodeLanguageNotSupported, message: sandbar.AsError(err).Error()}
}

// maxFrame is the longest message that a valid request can be, in bytes:
// everything in it written as six-byte escapes, and room for the rest.
func (r *ranges) maxFrame() int64 {
	const rest = 64 << 10 // names, numbers, id, white space, ignored fields
	return 6*(r.maxCode+r.maxEnv+r.maxStdin) + rest
}

// quote makes text of a client safe and short enough for a message.
func quote(s string) string { return sandbar.Quote(s, 64) }
