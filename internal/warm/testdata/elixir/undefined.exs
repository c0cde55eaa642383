Nothing.here(1)
