IO.puts "äöü 日本語 🎉"
IO.inspect String.upcase("ä")
IO.inspect :io.getopts(:standard_io)
IO.inspect :file.native_name_encoding()
