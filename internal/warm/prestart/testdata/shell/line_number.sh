# wants output
echo $LINENO

echo $LINENO
${x:?is not set}
