# wants output
mv "$0" other.sh; ls -A; . ./other2.sh 2>&1 || true
echo after
