# The functions that the test files of toybox and busybox call, in place of those of
# their own harnesses. case_begin, case_stdin and case_end are Go functions of the test:
# no utility under test decides whether a case passes.

# testing NAME COMMAND EXPECTED INPUT STDIN
testing() {
	NAME="${CMDNAME:+$CMDNAME }$1"
	[ -z "$1" ] && NAME=$2
	if [ $# -ne 5 ]; then
		case_end "$NAME" usage
		return
	fi
	if [ "$SUITE" = toybox ]; then
		if [ "$SKIP" -gt 0 ]; then
			SKIP=$((SKIP - 1))
			return 0
		fi
	elif [ -n "$SKIP" ]; then
		return 0
	fi
	case_begin "$NAME" "$3" "$4" "$5" || return 0
	case_stdin | ${EVAL:-eval} "$2" >actual
	RETVAL=$?
	case_end "$NAME" $RETVAL
	rm -f input expected actual
	return $RETVAL
}

# testcmd NAME ARGUMENTS EXPECTED INPUT STDIN
testcmd() {
	X="$1"
	[ -z "$X" ] && X="$CMDNAME $2"
	testing "$X" "\"$C\" $2" "$3" "$4" "$5"
}

# toyonly COMMAND...: as toybox's own harness does when it tests another implementation.
toyonly() {
	[ "$SKIP" -eq 0 ] && SKIP=1
	"$@"
}

skipnot() {
	eval "$@" >/dev/null 2>&1 || {
		SKIP=$((SKIP + 1))
		return 1
	}
}

# A dialogue with a terminal: there is none.
txpect() { :; }

# Every optional feature counts as built in.
optional() {
	SKIP=
	[ "$SUITE" = toybox ] && SKIP=0
}

FAILCOUNT=0
ECHO=echo
