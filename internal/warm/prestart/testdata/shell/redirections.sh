# wants output
exec 3>file 4<file; echo to three >&3; cat <&4; exec 3>&- 4<&-; echo x >&3
echo $?
