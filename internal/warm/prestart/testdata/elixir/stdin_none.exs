IO.inspect IO.gets("")
IO.inspect IO.read(:stdio, :all)
