# wants output
exec echo replaced
