echo marked
echo second
