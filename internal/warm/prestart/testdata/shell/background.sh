# wants output
sleep 0.05 & p=$!; wait $p; echo $?; (exit 9) & wait $!; echo $?; jobs
