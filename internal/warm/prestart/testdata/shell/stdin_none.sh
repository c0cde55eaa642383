# wants output
read a; echo "read: $? [$a]"; cat; readlink /proc/self/fd/0
