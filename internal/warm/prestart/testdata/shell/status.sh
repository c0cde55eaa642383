# wants output
grep "^[SC][ihap][gptC][BICPEQm].*:\|^Umask\|^Threads\|^Seccomp\|^NoNew\|^Groups\|^[UG]id\|^PPid\|^TracerPid" /proc/$$/status | grep -v SigQ
