//go:build !linux

package image

func mainOfTests() { Main() }
