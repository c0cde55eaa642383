IO.puts(:stderr, "to stderr")
IO.warn("a warning", [])
IO.write("no newline")
