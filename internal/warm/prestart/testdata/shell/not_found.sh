# wants output
no_such_command; echo $?
/no/such/file; echo $?
./main.sh; echo $?
