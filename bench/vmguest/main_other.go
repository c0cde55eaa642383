//go:build !linux

// Command vmguest is the only program of a minimal machine. It runs on Linux.
package main

func main() {}
