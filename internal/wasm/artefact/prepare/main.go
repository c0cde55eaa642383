// Command prepare checks a WebAssembly module that was fetched, strips it and
// puts it where a build finds it.
//
//	prepare list               what there is: name, package, path, file
//	prepare NAME FROM TO       module NAME as published, in the file FROM
//	prepare there NAME DIRECTORY  succeeds when that one is there
//	prepare check DIRECTORY    succeeds when all modules of the wasm driver are there
//	prepare check-pc DIRECTORY succeeds when the emulator is there, but for the guest's program
package main

import (
	"fmt"
	"os"

	"github.com/sandbar-dev/sandbar/internal/wasm/artefact"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "list":
		for _, m := range artefact.All() {
			fmt.Println(m.Name, m.Package, m.Path, m.File)
		}
		return nil
	case len(args) == 2 && args[0] == "check":
		_, err := artefact.Read(args[1])
		return err
	case len(args) == 2 && args[0] == "check-pc":
		return artefact.CheckEmulator(args[1])
	case len(args) == 3 && args[0] == "there":
		return there(args[1], args[2])
	case len(args) == 3:
		return prepare(args[0], args[1], args[2])
	}
	return fmt.Errorf("usage: prepare list | prepare check DIRECTORY | prepare check-pc DIRECTORY | prepare there NAME DIRECTORY | prepare NAME FROM TO")
}

func there(name, dir string) error {
	for _, m := range artefact.All() {
		if m.Name == name {
			return artefact.Check(dir, m)
		}
	}
	return fmt.Errorf("there is no module %q", name)
}

func prepare(name, from, to string) error {
	for _, m := range artefact.All() {
		if m.Name == name {
			return strip(m, from, to)
		}
	}
	return fmt.Errorf("there is no module %q", name)
}

// strip writes to in one step, so that a build beside this one sees the old
// file or the new.
func strip(m artefact.Module, from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if sum := artefact.Sum(b); sum != m.Upstream {
		return fmt.Errorf("%s has the SHA-256 sum %s, and that of %s in %s is %s", from, sum, m.Path, m.Package, m.Upstream)
	}
	if b, err = m.Prepare(b); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if sum := artefact.Sum(b); sum != m.Prepared {
		return fmt.Errorf("%s has the SHA-256 sum %s when prepared, and %s was expected", from, sum, m.Prepared)
	}
	if err := os.WriteFile(to+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
