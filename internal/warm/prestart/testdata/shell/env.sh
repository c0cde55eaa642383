# env: GREETING=good day
# env: OTHER=x=y
echo "$GREETING, $OTHER"; env | grep -c .
