// Package spawn starts agents as the first processes of namespaces of their own,
// for every driver whose sandboxes are made so, and finds what daemons that were
// killed have left of them.
//
// It promises that an agent ends with the daemon that started it, whatever kills
// that; that a process is never mistaken for another that got its number; that
// no two sandboxes of a daemon have the same ids where there are ranges of them;
// and that starting one costs the same however large the daemon is.
package spawn
