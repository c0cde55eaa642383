// Package backend gives the tests of what stands above a driver the real
// drivers: the same test runs over one after the other and must see the same.
//
// A test asks its package's [Pool] for a driver and gets native's. The test
// that is called [Over] runs others of the package as subtests, below the name
// of a driver, and there they get that one:
//
//	func TestOver(t *testing.T) {
//		backends.Over(t, []backend.Case{{Name: "Run", Run: TestRun}, …})
//	}
//
// What is otherwise over a driver is stated with the case and says why. What
// takes long is left to "make test-all" (testenv.Long).
package backend
