# wants output
rm "$0"; echo still here; ls -A
