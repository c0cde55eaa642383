package shell

import (
	"strconv"
	"strings"
)

// signal is a signal between processes of one Run. It is unrelated to signals of the host.
type signal int

const (
	sigEXIT signal = 0 // for trap only
	sigHUP  signal = 1
	sigINT  signal = 2
	sigKILL signal = 9
	sigPIPE signal = 13
	sigTERM signal = 15
	// sigERR, sigDEBUG and sigRETURN are conditions of trap, not signals.
	sigERR   signal = 100
	sigDEBUG signal = 101
)

// signalNames are the names of Linux's signals from 1 on (signal(7)).
const signalNames = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS"

func (s signal) String() string {
	switch s {
	case sigEXIT:
		return "EXIT"
	case sigERR:
		return "ERR"
	case sigDEBUG:
		return "DEBUG"
	}
	names := strings.Fields(signalNames)
	if s > 0 && int(s) <= len(names) {
		return names[s-1]
	}
	return strconv.Itoa(int(s))
}

// ends reports whether the signal's default action ends a process. Stopping a process is not
// supported.
func (s signal) ends() bool {
	switch s.String() {
	case "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH":
		return false
	}
	return s > 0
}

// parseSignal parses a name, with or without SIG and in any case, or a number.
func parseSignal(text string) (signal, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return signal(n), n >= 0 && n <= len(strings.Fields(signalNames))
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	switch name {
	case "EXIT":
		return sigEXIT, true
	case "ERR":
		return sigERR, true
	case "DEBUG":
		return sigDEBUG, true
	}
	for i, n := range strings.Fields(signalNames) {
		if n == name {
			return signal(i + 1), true
		}
	}
	return 0, false
}
