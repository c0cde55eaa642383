# wants output
seq 1 20000; seq 1 20000 >&2
