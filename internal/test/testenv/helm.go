package testenv

import "path/filepath"

// helmVersion is the version of the Helm that "make cluster" builds.
const helmVersion = "4.3.1"

// HelmProgram is the path of the Helm that "make cluster" builds.
func HelmProgram() string {
	return filepath.Join(filepath.Dir(ClusterDir()), "helm-"+helmVersion, "helm")
}

// Helm is Helm in HelmProgram.
var Helm = require("Helm", "run \"make cluster\" with access to the Go module proxy (about 5 minutes for Helm, once)", func() error {
	return executable(HelmProgram())
})
