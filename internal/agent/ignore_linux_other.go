//go:build linux && !amd64 && !arm64

package agent

func handlers() (ignore, unlessFault, restorer uintptr) { return 0, 0, 0 }
