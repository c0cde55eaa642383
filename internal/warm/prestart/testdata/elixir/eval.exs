IO.inspect Code.eval_string("a + b", a: 1, b: 2)
IO.inspect Code.string_to_quoted!("1 + x")
IO.inspect (try do raise "x" rescue e -> {e, length(__STACKTRACE__)} end)
IO.inspect :erlang.system_info(:otp_release)
