# wants output
[ "$1" ] && { echo inner; return 3; }
set -- x; . ./main.sh; echo "$?"
