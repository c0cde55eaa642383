# wants output
grep "pos\|flags" /proc/$$/fdinfo/10; readlink /proc/$$/fd/10
