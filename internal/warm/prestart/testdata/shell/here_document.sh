# wants output
v=value
cat <<A <<"B"
$v
A
b
B
cat <<A
$v $(echo nested)
A
