spawn_link(fn -> raise "in a process" end)
Process.sleep(5000)
