set -u
echo before
echo "$MISSING"
echo after
