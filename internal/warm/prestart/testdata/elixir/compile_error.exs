defmodule X do
  def f, do: undefined_function_here(1)
end
