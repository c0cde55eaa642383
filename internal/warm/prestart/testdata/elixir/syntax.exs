IO.puts "never"
defmodule X do
  def f( do: 1
end
