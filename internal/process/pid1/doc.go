// Package pid1 is what a program does that is the first process of a container, or
// of a machine. Whatever loses its parent there becomes its child, and is a zombie
// until it has been waited for; the namespace of processes that such a zombie was the
// last of does not end either. A program that waits for children of its own cannot
// wait for any, so it is made two.
//
// It promises that the program in it is the same as anywhere else: its arguments,
// environment, streams and terminal, the signals that somebody sends it, and its exit
// code.
package pid1
