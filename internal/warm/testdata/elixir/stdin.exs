# stdin: one\ntwo ä\nthree
IO.inspect IO.gets("name? ")
IO.inspect IO.read(:stdio, :line)
IO.inspect Enum.to_list(IO.stream(:stdio, :line))
IO.inspect IO.gets("")
