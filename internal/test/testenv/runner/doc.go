// Runner runs the project's tests and reports the results: "make test".
//
// It compiles the tests of all packages and runs several packages at once. As root it runs
// each package as root and, concurrently, the packages whose outcome depends on the user a
// second time as an ordinary user. The compiled tests, the sources and the fetched tools are
// in a directory that this user can read, so that the project may be in a private home
// directory. The user is a uid that has neither an account nor a process. A process of this
// user that outlives the tests is a failure.
//
// It prints failures in full, one line per package, the slowest tests, and every skip with
// its reason. A skip counts as a failure if it
//
//   - was not made by testenv.Need,
//   - names a requirement that is met, or
//   - is not allowed on this host by skips.golden.
//
// The runner never repeats a failed test: an unsteady test is a failure.
//
// The last line, also written to the file of -summary, has the form
//
//	12 passed, 0 failed, 3 skipped
//
// where a test with subtests is counted by its subtests. The exit code is 0 only if a test
// passed and none failed.
package main
