# wants output
seq 1 1000 | sort -r | head -3; seq 1 100000 | tail -1; yes | head -2
