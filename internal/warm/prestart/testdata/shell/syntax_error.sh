echo before
if true; then echo x
