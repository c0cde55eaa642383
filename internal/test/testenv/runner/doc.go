// Runner runs the project's tests and says what came of them: "make test".
//
// It runs "go test -json" over all packages and reads the events. As root it
// then runs the tests a second time as an ordinary user: the test binaries are
// compiled first, and they, the sources' test data and the fetched tools are
// copied to a directory that user can reach, so that it works when the clone
// lies in a private home directory. The user is a number without a name that no
// process has; what is still running under it at the end is a failure.
//
// It prints failures in full, a line a package, the slowest tests and every
// skip with its reason. A skip counts as a failure when it
//
//   - was not made by testenv.Need,
//   - names a requirement that is met after all, or
//   - is not allowed here by skips.golden.
//
// Failed tests are run a second time, see again.go; those that pass then are named.
//
// The last line, also written to the file of -summary, has the form
//
//	12 passed, 0 failed, 3 skipped
//
// where tests that have parts are counted by their parts. The exit code is 0
// only if something passed and nothing failed.
package main
