me = self()
spawn(fn -> send(me, {:hi, 1}) end)
receive do m -> IO.inspect m after 5000 -> IO.puts "late" end
{:ok, a} = Agent.start_link(fn -> 41 end)
IO.inspect Agent.get_and_update(a, &{&1 + 1, &1})
IO.inspect Task.await_many(for i <- 1..5, do: Task.async(fn -> i * i end))
