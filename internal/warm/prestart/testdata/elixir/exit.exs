System.at_exit(fn code -> IO.puts("at exit #{code}") end)
exit({:shutdown, 7})
