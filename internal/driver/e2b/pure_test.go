package e2b

import (
	"encoding/binary"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/internal/linux/policy"
)

func TestOptions(t *testing.T) {
	o, err := parseOptions(map[string]string{optionKey: "k"})
	if err != nil || o.api.String() != "https://api.e2b.app" || o.sandbox != nil || o.template != "base" || o.timeout != defaultTimeout || o.internet {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = parseOptions(map[string]string{optionKey: "k", optionDomain: "e2b.example", optionSandboxURL: "http://127.0.0.1:1/", optionTemplate: "mine", optionTimeout: "1h", optionInternet: "true"})
	if err != nil || o.api.String() != "https://api.e2b.example" || o.sandbox.String() != "http://127.0.0.1:1" || o.template != "mine" || o.timeout.Hours() != 1 || !o.internet {
		t.Errorf("%+v, %v", o, err)
	}
	const secret = "hush\n"
	for name, c := range map[string]struct {
		raw   map[string]string
		code  sandbar.Code
		field string
	}{
		"no key":             {map[string]string{}, sandbar.Unsupported, optionKey},
		"key with a newline": {map[string]string{optionKey: secret}, sandbar.Invalid, optionKey},
		"unknown":            {map[string]string{optionKey: "k", "region": "eu"}, sandbar.Invalid, "region"},
		"domain":             {map[string]string{optionKey: "k", optionDomain: "a/b"}, sandbar.Invalid, optionDomain},
		"URL with a user":    {map[string]string{optionKey: "k", optionAPIURL: "https://a:b@c"}, sandbar.Invalid, optionAPIURL},
		"URL with a query":   {map[string]string{optionKey: "k", optionAPIURL: "https://c?x"}, sandbar.Invalid, optionAPIURL},
		"no URL":             {map[string]string{optionKey: "k", optionSandboxURL: "c:80"}, sandbar.Invalid, optionSandboxURL},
		"short timeout":      {map[string]string{optionKey: "k", optionTimeout: "1s"}, sandbar.Invalid, optionTimeout},
		"internet":           {map[string]string{optionKey: "k", optionInternet: "some"}, sandbar.Invalid, optionInternet},
	} {
		_, err := parseOptions(c.raw)
		if e := sandbar.AsError(err); e == nil || e.Code != c.code || e.Field != c.field || e.Fix == "" || strings.Contains(e.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sandboxes are found as by E2B's own clients.
func TestBase(t *testing.T) {
	for _, c := range []struct {
		raw  map[string]string
		made created
		want string
	}{
		{map[string]string{}, created{ID: "x"}, "https://sandbox.e2b.app"},
		{map[string]string{optionDomain: "e2b.example"}, created{ID: "x"}, "https://49983-x.e2b.example"},
		{map[string]string{}, created{ID: "x", Domain: "d.example:8443"}, "https://49983-x.d.example:8443"},
		{map[string]string{}, created{ID: "x", Domain: "e2b.dev"}, "https://sandbox.e2b.dev"},
		{map[string]string{optionSandboxURL: "http://localhost:3000"}, created{ID: "x", Domain: "d.example"}, "http://localhost:3000"},
	} {
		c.raw[optionKey] = "k"
		o, err := parseOptions(c.raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := newService(o).baseOf(c.made); got != c.want {
			t.Errorf("%v, %+v: %s, want %s", c.raw, c.made, got, c.want)
		}
	}
}

func TestTemplate(t *testing.T) {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max open files            1024                 4096                 files     \n" +
		"Max processes             unlimited            unlimited            processes \n"
	text := machine + "\n1001\n1002\n" + limits + "\x00PATH=/opt/bin:/bin\x00E2B_SANDBOX=true\x00PWD=/\x00TEXT=a\nb\x00"
	got, err := parseTemplate([]byte(text))
	if err != nil || got.uid != 1001 || got.gid != 1002 || !slices.Equal(got.env, []string{"PATH=/opt/bin:/bin", "TEXT=a\nb"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := got.ceiling(policy.RlimitFiles); n != 4096 {
		t.Errorf("open files: %d", n)
	}
	if n := got.ceiling(policy.RlimitCore); n != policy.RlimitInfinity {
		t.Errorf("a limit that is not named: %d", n)
	}
	for _, bad := range []string{"", "sh: not found\n", "riscv64\n1\n1\n" + limits, machine + "\nx\n1\n" + limits, machine + "\n0\n0\n" + limits} {
		if _, err := parseTemplate([]byte(bad)); sandbar.CodeOf(err) != sandbar.Unsupported {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzStream reads a stream of a hostile service: it ends, and no event is larger than the stream.
func FuzzStream(f *testing.F) {
	envelope := func(flags byte, text string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text))), text...)
	}
	f.Add(slices.Concat(envelope(0, `{"event":{"start":{"pid":7}}}`), envelope(0, `{"event":{"data":{"stdout":"aGk="}}}`), envelope(0, `{"event":{"keepalive":{}}}`),
		envelope(0, `{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}`), envelope(flagEnd, `{}`)))
	f.Add(envelope(flagEnd, `{"error":{"code":"not_found","message":"gone"}}`))
	f.Add(envelope(1, `{}`))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, '{'})
	f.Add(envelope(0, `{"event":{"data":{"stdout":"*"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &stream{body: io.NopCloser(strings.NewReader(string(b)))}
		for range len(b) + 1 {
			e, err := s.next()
			if err != nil {
				return
			}
			if e.Data != nil && len(e.Data.Stdout)+len(e.Data.Stderr) > len(b) {
				t.Fatal("more data than bytes")
			}
		}
		t.Fatal("the stream has no end")
	})
}
