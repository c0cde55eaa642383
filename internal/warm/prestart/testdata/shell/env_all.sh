# wants output
env | grep -v ^_= | sort; set | grep -v "^_=\|PPID" | sort
