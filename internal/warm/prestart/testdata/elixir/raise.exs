defmodule Deep do
  def go(0), do: raise(ArgumentError, "boom")
  def go(n), do: 1 + go(n - 1)
end
Deep.go(3)
