throw {:a, 1}
