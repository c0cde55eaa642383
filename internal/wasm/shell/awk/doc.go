// Package awk implements the language AWK: all of POSIX, and the most used extensions of GNU awk
// (gensub, strftime, systime, length and delete of whole arrays, regular expressions as RS,
// nextfile).
//
// A program accesses files, commands and the clock only through the functions of its [Env].
// Commands in pipes run one after another, not concurrently: output to a command is buffered until
// the pipe is closed, and output of a command until it is read.
package awk
