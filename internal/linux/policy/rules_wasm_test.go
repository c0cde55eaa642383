package policy

import "testing"

// The rules for the wasm driver compile on both architectures.
func TestWasmRules(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		for name, rules := range map[string][]Rule{"worker": WasmWorkerRules(), "runner": WasmRunnerRules()} {
			if p, err := Compile(arch, rules); err != nil || len(p) == 0 {
				t.Errorf("%s on %s: %d bytes, %v", name, arch, len(p), err)
			}
			for _, r := range rules {
				if r.Why == "" {
					t.Errorf("%s: %v has no reason", name, r.Names)
				}
			}
		}
	}
}
