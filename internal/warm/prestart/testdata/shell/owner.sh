# wants output
stat -c %u-%g main.sh; id -u; id -g; [ -O "$0" ] && echo mine; [ -w "$0" ] && echo writable; [ -x "$0" ] || echo not executable; [ -p "$0" ] || echo no pipe
