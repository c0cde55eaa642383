# wants output
pwd; ls -A; stat -c "%n %F %a %s %h" main.sh; stat -c "%a %F" .; find . -type p
