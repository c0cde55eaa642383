# stdin: raw bytes ö\n
IO.inspect IO.binread(:stdio, :all)
