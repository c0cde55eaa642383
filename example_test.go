package sandbar_test

import (
	"fmt"
	"io"

	"github.com/sandbar-dev/sandbar"
)

// An error has a code for programs, and a text with the next step for people.
func ExampleError() {
	err := error(&sandbar.Error{Code: sandbar.NoSpace, Message: "the disk of the sandbox is full", Fix: "remove files, or ask for more"})
	err = fmt.Errorf("saving: %w", err)
	fmt.Println(sandbar.CodeOf(err), sandbar.CodeOf(err).Retryable())
	fmt.Println(err)
	// Output:
	// no_space false
	// saving: the disk of the sandbox is full (remove files, or ask for more)
}

// Errorf keeps its cause for errors.Is.
func ExampleErrorf() {
	err := sandbar.Errorf(sandbar.Unavailable, "the input broke off: %w", io.ErrUnexpectedEOF)
	fmt.Println(err, err.Err != nil)
	// Output:
	// the input broke off: unexpected EOF true
}

// An ID can be written as a UUID of the same bits.
func ExampleID_UUID() {
	id, err := sandbar.ReadID("0f8fad5b-d9cb-469f-a165-70867728950e")
	fmt.Println(id.UUID(), err)
	_, err = sandbar.ParseID("../etc/passwd")
	fmt.Println(sandbar.CodeOf(err))
	// Output:
	// 0f8fad5b-d9cb-469f-a165-70867728950e <nil>
	// invalid
}
