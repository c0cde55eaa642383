# wants output
[ "$INNER" ] && { echo "inner $0"; exit 4; }
INNER=1 sh "$0"; echo $?; INNER=1 sh <"$0"; echo $?
