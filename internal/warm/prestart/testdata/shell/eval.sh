# wants output
eval "a=1; eval \"b=2\""; echo $a$b; eval ")"; echo not reached
