defmodule Shape do
  defstruct [:w, h: 2]
  defprotocol Area, do: (def area(s))
  defimpl Area, for: Shape, do: (def area(s), do: s.w * s.h)
end
IO.inspect Shape.Area.area(struct(Shape, w: 3))
IO.inspect {Shape.module_info(:module), Code.required_files(), function_exported?(Shape, :__struct__, 0)}
