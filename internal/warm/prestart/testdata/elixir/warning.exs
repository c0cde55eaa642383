defmodule X do
  def f(unused), do: 1
end
IO.inspect X.f(1)
