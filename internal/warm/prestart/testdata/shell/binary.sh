# wants output
printf "\000\001\377\n"; head -c 300 /dev/zero | od -c | head -3
