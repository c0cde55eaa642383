echo before


)
