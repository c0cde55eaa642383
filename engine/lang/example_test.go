package lang_test

import (
	"fmt"

	"github.com/sandbar-dev/sandbar/engine/lang"
)

// A catalogue of the default languages and one more.
func Example() {
	catalogue, err := lang.New(append(lang.Default(), lang.Language{Name: "awk", Aliases: []string{"gawk"}, File: "main.awk", Command: []string{"awk", "-f", "{file}"}})...)
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := catalogue.Find("gawk")
	fmt.Println(l.Name, l.Argv("main.awk", []string{"-x"}), err)
	fmt.Println(catalogue.Names())
	// Output:
	// awk [awk -f main.awk -x] <nil>
	// [awk elixir javascript python shell]
}
