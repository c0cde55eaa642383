// Package arch tests the rules of this code base; it has no other code. The rules are in
// ARCHITECTURE.md: its tables list what each package may import and which files may start
// programs, and the tests read the tables. They check the sources of all systems and build
// tags, and the other text files of the repository.
package arch
