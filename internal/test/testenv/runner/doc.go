// Runner runs the project's tests and says what came of them: "make test".
//
// It compiles the tests of all packages and runs several packages at once. As root it runs each
// package as root, and those whose outcome depends on the user a second time as an ordinary
// user, side by side with root's: the compiled tests, the sources and the fetched tools are in a
// directory that this user can reach, so that it works when the clone lies in a private home
// directory. The user is a number that has no name and no process. A process that runs as this
// user after the tests is a failure.
//
// It prints failures in full, a line a package, the slowest tests and every
// skip with its reason. A skip counts as a failure when it
//
//   - was not made by testenv.Need,
//   - names a requirement that is met after all, or
//   - is not allowed here by skips.golden.
//
// No test runs a second time: a test that fails now and then is a failure.
//
// The last line, also written to the file of -summary, has the form
//
//	12 passed, 0 failed, 3 skipped
//
// where tests that have parts are counted by their parts. The exit code is 0
// only if something passed and nothing failed.
package main
