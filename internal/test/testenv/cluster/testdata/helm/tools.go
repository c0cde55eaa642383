//go:build tools

// Package tools lists the program of this module that "make cluster" builds: Helm, which tests the
// chart of deploy/helm.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
