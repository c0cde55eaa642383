# env: PATH=/usr/bin:/bin:/nowhere
echo "$PATH"; command -v ls; nothing
