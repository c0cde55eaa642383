# wants output
cat "$0"; wc -c <"$0"
