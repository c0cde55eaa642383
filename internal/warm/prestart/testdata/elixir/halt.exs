IO.puts String.duplicate("a", 100_000)
System.halt(3)
