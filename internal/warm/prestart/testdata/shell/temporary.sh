# wants output
ls -A /tmp; echo x >/tmp/x; cat /tmp/x; df /tmp >/dev/null && echo mounted
