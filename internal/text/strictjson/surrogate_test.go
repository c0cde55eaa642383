package strictjson

import "testing"

func TestUnpaired(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `{}`: 0, `"\ud83d\ude00"`: 0, `"\ud83d"`: 2, `"a\ude00"`: 3, `"\ud83d\u0041"`: 2, `"\\ud83d"`: 0, `\ud83d`: 0,
		`"\u00e9"`: 0, `"\uzzzz"`: 0, `"\ud83d\ud83d"`: 2, `"\`: 0, `"\"\ud800"`: 4,
	} {
		if got := UnpairedSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func FuzzUnpaired(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\ude00\ud800"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if at := UnpairedSurrogate(text); at < 0 || at > len(text) || (at > 0 && text[at-1] != '\\') {
			t.Errorf("%q: %d", text, at)
		}
	})
}
