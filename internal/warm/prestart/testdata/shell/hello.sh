# wants output
echo hello world
