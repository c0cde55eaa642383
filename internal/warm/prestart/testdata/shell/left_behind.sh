# wants output
(sleep 0.05; echo late) &
echo early
