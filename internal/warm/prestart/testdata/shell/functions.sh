# wants output
f() { local v=$1; [ $v -le 1 ] && echo 1 && return; echo $(( v * $(f $((v-1))) )); }; f 10
