true; false
