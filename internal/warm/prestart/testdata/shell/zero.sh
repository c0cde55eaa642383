# wants output
echo "$0 $# [$*]"
