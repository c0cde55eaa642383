// Package backend provides real drivers to tests of the layers above: the same test
// runs over each driver and must pass with the same results.
//
// A test gets the native driver from its package's [Pool]. The test named [Over] runs
// other tests of the package as subtests named after a driver; these get that driver:
//
//	func TestOver(t *testing.T) {
//		backends.Over(t, []backend.Case{{Name: "Run", Run: TestRun}, …})
//	}
//
// A case lists the drivers over which it does not run, with reasons. Long cases run only
// in "make test-all" (testenv.Long).
package backend
