# wants output
set -- /proc/[0-9]*; echo $#; sh -c "echo \$PPID" | { read p; [ $p = $$ ] && echo child; }
