# wants output
while read l; do echo "<$l>"; done <"$0"
