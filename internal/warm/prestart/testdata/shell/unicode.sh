# wants output
s="grüße, 世界"; echo "$s"; echo ${#s}; printf "%s\n" "$s" | wc -m
