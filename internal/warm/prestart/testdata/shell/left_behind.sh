# A process that outlives the shell holds its output open.
echo early
(sleep 30; echo late) &
