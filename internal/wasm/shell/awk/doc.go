// Package awk is the language AWK: all of POSIX, and of GNU awk what scripts
// use most (gensub, strftime, systime, length of arrays, delete of whole ones,
// regular expressions as RS, nextfile).
//
// A program reaches the world through the functions of its [Env] only. Commands
// in pipes run one after the other, not at the same time: what is printed to one
// is kept until it is closed, what one prints is kept until it is read.
package awk
