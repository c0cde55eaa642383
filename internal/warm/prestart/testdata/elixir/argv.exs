# args: one --two ä
IO.inspect System.argv()
IO.inspect {__ENV__.file, __DIR__, File.cwd!(), __ENV__.line, __ENV__.module}
