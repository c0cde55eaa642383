# wants output
echo out; exec >&-; echo lost; echo err >&2; exec 2>&-; echo lost >&2; exit 5
