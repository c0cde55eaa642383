# wants output
[ $$ -gt 1 ] && echo many; echo $PPID; sh -c "echo \$PPID" | grep -c $$
