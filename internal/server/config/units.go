package config

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/sandbar-dev/sandbar"
)

// unlimitedWord is the text of sandbar.Unlimited.
const unlimitedWord = "unlimited"

// sizeUnits are the units of ParseSize, longer names before their prefixes. A single letter is
// binary, as in container tools.
var sizeUnits = []struct {
	names []string
	bytes int64
}{
	{[]string{"", "b"}, 1},
	{[]string{"kib", "k"}, 1 << 10},
	{[]string{"mib", "m"}, 1 << 20},
	{[]string{"gib", "g"}, 1 << 30},
	{[]string{"tib", "t"}, 1 << 40},
	{[]string{"kb"}, 1e3},
	{[]string{"mb"}, 1e6},
	{[]string{"gb"}, 1e9},
	{[]string{"tb"}, 1e12},
}

// ParseSize parses a number of bytes: a whole or decimal number and a unit, in either case, with or
// without a space: B, KiB, MiB, GiB, TiB (powers of 1024; K, M, G, T are the same) or KB, MB, GB,
// TB (powers of 1000). Only 0 needs no unit, because some programs take a bare number as bytes and
// others as MiB. The result is a whole number from 0 that fits an int64. Errors give the reason
// without the text itself.
func ParseSize(s string) (int64, error) {
	if strings.Trim(s, "0123456789") == "" && strings.Trim(s, "0") != "" {
		return 0, errors.New("has no unit: write MiB behind it for mebibytes, or B for bytes")
	}
	return parseBytes(s)
}

// parseBytes is ParseSize, but a number without a unit is bytes.
func parseBytes(s string) (int64, error) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
	number, unit := s[:digits], strings.ToLower(strings.TrimSpace(s[digits:]))
	if number == "" || len(number) > 40 || strings.Count(number, ".") > 1 || number[0] == '.' || number[len(number)-1] == '.' {
		return 0, fmt.Errorf("is not a size")
	}
	factor, ok := sizeFactor(unit)
	if !ok {
		return 0, fmt.Errorf("has no known unit of size")
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("is not a size")
	}
	r.Mul(r, new(big.Rat).SetInt64(factor))
	if !r.IsInt() {
		return 0, fmt.Errorf("is not a whole number of bytes")
	}
	if !r.Num().IsInt64() {
		return 0, fmt.Errorf("is too large")
	}
	return r.Num().Int64(), nil
}

func sizeFactor(unit string) (int64, bool) {
	for _, u := range sizeUnits {
		for _, n := range u.names {
			if n == unit {
				return u.bytes, true
			}
		}
	}
	return 0, false
}

// FormatSize writes a number of bytes for ParseSize, in the largest binary unit that keeps it
// whole: 256MiB. sandbar.Unlimited is "unlimited".
func FormatSize(n int64) string {
	if n == sandbar.Unlimited {
		return unlimitedWord
	}
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// ParseDuration parses a duration such as 500ms, 30s or 1h30m. A whole number without a unit is
// seconds. The result is not negative. Errors give the reason without the text itself.
func ParseDuration(s string) (time.Duration, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("has no unit of time")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("is not a duration")
	}
	if d < 0 {
		return 0, fmt.Errorf("is negative")
	}
	return d, nil
}

// FormatDuration writes a duration for ParseDuration, without zero parts: 10m, not 10m0s.
// sandbar.Unlimited is "unlimited".
func FormatDuration(d time.Duration) string {
	if d == sandbar.Unlimited {
		return unlimitedWord
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// ParseCPUs parses a number of CPUs such as 0.5 or 2.
func ParseCPUs(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(s, "xX_pP") {
		return 0, fmt.Errorf("is not a number of processors")
	}
	return f, nil
}

// FormatCPUs writes a number of CPUs for ParseCPUs. sandbar.Unlimited is "unlimited".
func FormatCPUs(f float64) string {
	if f == sandbar.Unlimited {
		return unlimitedWord
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

func parseRatio(s string) (float64, error) {
	f, err := ParseCPUs(s)
	if err != nil {
		return 0, fmt.Errorf("is not a number")
	}
	return f, nil
}

func formatRatio(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// ParseCount parses a whole number in decimal digits.
func ParseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strings.HasPrefix(s, "+") {
		if ne, ok := err.(*strconv.NumError); ok && ne.Err == strconv.ErrRange {
			return 0, fmt.Errorf("is too large")
		}
		return 0, fmt.Errorf("is not a whole number")
	}
	return n, nil
}

// FormatCount writes a whole number for ParseCount. sandbar.Unlimited is "unlimited".
func FormatCount(n int64) string {
	if n == sandbar.Unlimited {
		return unlimitedWord
	}
	return strconv.FormatInt(n, 10)
}
