set -x
a=1
echo $a
[ $a = 2 ] || echo no
