# wants output
echo "echo appended" >>"$0"
echo first
