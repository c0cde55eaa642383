# wants output
cat /proc/$$/stat | sed "s/.*)//" | { read s pp pg sid rest; [ $pg = $$ ] && [ $sid = $$ ] && echo "leads, under $pp"; }
