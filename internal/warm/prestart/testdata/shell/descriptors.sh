# wants output
for f in /proc/$$/fd/*; do echo "${f##*/} $(readlink $f | sed s/[0-9]*//g)"; done
