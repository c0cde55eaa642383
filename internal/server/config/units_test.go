package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int64
		err  string
	}{
		{"0", 0, ""},
		{"1", 0, "has no unit: write MiB behind it for mebibytes, or B for bytes"},
		{"1B", 1, ""},
		{"64KiB", 64 << 10, ""},
		{"256MiB", 256 << 20, ""},
		{"256 mib", 256 << 20, ""},
		{"1GiB", 1 << 30, ""},
		{"2TiB", 2 << 40, ""},
		{"512m", 512 << 20, ""},
		{"1.5GiB", 3 << 29, ""},
		{"1KB", 1000, ""},
		{"3MB", 3e6, ""},
		{"10B", 10, ""},
		{"9223372036854775807B", 1<<63 - 1, ""},
		{"9223372036854775808B", 0, "is too large"},
		{"99999999999999999999999999999999999999999TiB", 0, "is not a size"},
		{"0.3B", 0, "is not a whole number of bytes"},
		{"1.0000001KiB", 0, "is not a whole number of bytes"},
		{"", 0, "is not a size"},
		{"MiB", 0, "is not a size"},
		{"-1", 0, "is not a size"},
		{"+1", 0, "is not a size"},
		{".5MiB", 0, "is not a size"},
		{"5.MiB", 0, "is not a size"},
		{"1.2.3", 0, "is not a size"},
		{"1e9", 0, "has no known unit of size"},
		{"0x10", 0, "has no known unit of size"},
		{"1/2MiB", 0, "has no known unit of size"},
		{"12 parsecs", 0, "has no known unit of size"},
		{"1MiBs", 0, "has no known unit of size"},
		{"١MiB", 0, "is not a size"},
	} {
		got, err := ParseSize(tc.in)
		if got != tc.want || text0(err) != tc.err {
			t.Errorf("ParseSize(%q) = %d, %q; want %d, %q", tc.in, got, text0(err), tc.want, tc.err)
		}
	}
}

func text0(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSizesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		if got, err := ParseSize(FormatSize(n)); err != nil || got != n {
			t.Fatalf("%d as %q came back as %d, %v", n, FormatSize(n), got, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration
		err  string
	}{
		{"30s", 30 * time.Second, ""},
		{"1h30m", 90 * time.Minute, ""},
		{"500ms", 500 * time.Millisecond, ""},
		{"0", 0, ""},
		{"30", 30 * time.Second, ""},
		{"5000000000", 0, "has no unit of time"},
		{"-5", 0, "has no unit of time"},
		{"1e3", 0, "has no unit of time"},
		{"NaN", 0, "has no unit of time"},
		{"-5s", 0, "is negative"},
		{"", 0, "is not a duration"},
		{"soon", 0, "is not a duration"},
		{"5 s", 0, "is not a duration"},
		{"99999999999h", 0, "is not a duration"},
	} {
		got, err := ParseDuration(tc.in)
		if got != tc.want || text0(err) != tc.err {
			t.Errorf("ParseDuration(%q) = %v, %q; want %v, %q", tc.in, got, text0(err), tc.want, tc.err)
		}
	}
}

func TestDurationsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		if got, err := ParseDuration(FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%v as %q came back as %v, %v", d, FormatDuration(d), got, err)
		}
	})
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		30 * time.Second: "30s", 10 * time.Minute: "10m", 24 * time.Hour: "24h", 90 * time.Second: "1m30s",
		time.Hour + 30*time.Second: "1h0m30s", 0: "0s", 500 * time.Millisecond: "500ms", -1: "unlimited",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestParseCPUsAndCount(t *testing.T) {
	for in, want := range map[string]string{
		"NaN": "is not a number of processors", "Inf": "is not a number of processors", "1e400": "is not a number of processors",
		"0x1p4": "is not a number of processors", "1_0": "is not a number of processors", "": "is not a number of processors", "0.5": "",
	} {
		if _, err := ParseCPUs(in); text0(err) != want {
			t.Errorf("ParseCPUs(%q) = %v, want %q", in, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "is not a whole number", "1.5": "is not a whole number", "+1": "is not a whole number", "1e3": "is not a whole number",
		"99999999999999999999": "is too large", "64": "",
	} {
		if _, err := ParseCount(in); text0(err) != want {
			t.Errorf("ParseCount(%q) = %v, want %q", in, err, want)
		}
	}
}
