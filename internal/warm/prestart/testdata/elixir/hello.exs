IO.puts "hello world" # wants output
