exec /no/such/program
echo not reached
