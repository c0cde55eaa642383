// Package arch holds the rules of this code base as tests; it has no code of
// its own. The rules are written for people, in ARCHITECTURE.md: its tables say
// what each package may import and which files may start programs, and the
// tests read the tables. They look at all sources at once, whatever system or
// build tag a file is for, and at the other texts of the tree.
package arch
