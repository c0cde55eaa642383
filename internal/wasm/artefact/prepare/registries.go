package main

// The registries of those who have set none. The client programs know them too; a
// build on a machine without these programs has nobody else to ask. internal/arch
// lets this file alone name such hosts.
const (
	npmRegistry   = "https://registry.npmjs.org"
	debianMirror  = "http://deb.debian.org/debian"
	debianArchive = "http://archive.debian.org/debian" // releases that are no longer supported
)
