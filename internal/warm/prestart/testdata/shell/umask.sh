# wants output
umask; touch new; stat -c %a new; umask 077; touch newer; stat -c %a newer
