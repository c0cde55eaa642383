package sandbar_test

import (
	"testing"

	"github.com/sandbar-dev/sandbar"
)

func TestCheckEnv(t *testing.T) {
	for _, env := range []map[string]string{nil, {"A": ""}, {"A": "b=c\n"}, {"a b": "ü"}} {
		if err := sandbar.CheckEnv(env); err != nil {
			t.Errorf("%q: %v", env, err)
		}
	}
	for _, env := range []map[string]string{{"": "x"}, {"A=B": "x"}, {"A\x00": "x"}, {"A": "x\x00"}} {
		if e := sandbar.AsError(sandbar.CheckEnv(env)); e == nil || e.Code != sandbar.Invalid || e.Field != "env" {
			t.Errorf("%q: %v", env, e)
		}
	}
}
