# args: one two  four
echo "$0 $#"; for a in "$@"; do echo "<$a>"; done; shift 2; echo "$1"
