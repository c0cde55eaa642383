# env: GREETING=hello = there
IO.inspect System.get_env() |> Map.drop(["_"]) |> Enum.sort()
IO.inspect System.get_env("GREETING")
