# stdin: no end of line
IO.inspect(String.trim(IO.gets("")))
IO.inspect(IO.gets(""))
