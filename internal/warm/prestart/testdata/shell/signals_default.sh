# wants output
kill -l 15; kill -TERM $$; echo not reached
