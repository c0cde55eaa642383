IO.puts "stopping"
System.stop(4)
Process.sleep(:infinity)
