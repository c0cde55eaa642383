require Logger
Logger.configure_backend(:console, format: "$level $message\n", colors: [enabled: false])
Logger.error("something")
Logger.info("else")
Logger.flush()
