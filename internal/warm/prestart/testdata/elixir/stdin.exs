# stdin: one\ntwo ä\nthree\n
# The last line has its end: whether Erlang 24 reads one without depends on when the input ends.
IO.inspect IO.gets("name? ")
IO.inspect IO.read(:stdio, :line)
IO.inspect Enum.to_list(IO.stream(:stdio, :line))
IO.inspect IO.gets("")
