# wants output
ulimit -a | grep -v process; ulimit -Ha | grep -v process
