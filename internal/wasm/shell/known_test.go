package shell

import "testing"

// Utilities that a host may lack are compared with known output.
func TestUtilitiesWithoutAReference(t *testing.T) {
	for _, c := range []struct {
		script, want string
		exit         int
	}{
		{script: `echo '{"a":[1,{"b":"x y"}],"c":null}' | jq .`, want: "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x y\"\n    }\n  ],\n  \"c\": null\n}\n"},
		{script: `echo '{"a":[1,2,3]}' | jq -c '.a | map(.*2), add'`, want: "[2,4,6]\n6\n"},
		{script: `echo '"x" "y"' | jq -r .; echo '[{"n":"a","v":1},{"n":"b","v":2}]' | jq -r '.[] | "\(.n)=\(.v)"'`, want: "x\ny\na=1\nb=2\n"},
		{script: `jq -n --arg x 5 --argjson y '{"z":1}' -c '[$x,$y]'; jq -n -c '[1,[]],{}'; jq -s -c . <<< '1 2'; jq -R . <<< 'a b'`, want: "[\"5\",{\"z\":1}]\n[1,[]]\n{}\n[1,2]\n\"a b\"\n"},
		{script: `echo 'null' | jq -e .; echo $?; echo '{' | jq . 2>/dev/null; echo $?; echo 1 | jq '.a' 2>/dev/null; echo $?; jq . nope 2>/dev/null; echo $?; echo 1 | jq '(' 2>/dev/null; echo $?`, want: "null\n1\n2\n5\n2\n3\n"},
		{script: `X=hi jq -n 'env.X'; jq -n -r '@base64 "\("hi")", @csv "\([1,"a"])", ([1,2]|@json)'; jq -n '"é" | length'; jq -n -a '"é"'; jq -n --tab '[1]'; jq -nj '"a","b"'; echo; jq -n '$ARGS.positional' -c --args a b`, want: "\"hi\"\naGk=\n1,\"a\"\n[1,2]\n1\n\"\\u00e9\"\n[\n\t1\n]\nab\n[\"a\",\"b\"]\n"},
		{script: `printf 'hello\nworld\0\377' | xxd; printf 'abc' | xxd -p; echo 616263 | xxd -r -p; echo; printf 'abcdef' | xxd | xxd -r; echo; printf AB | xxd -i; printf A | xxd -b; printf 'abcd' | xxd -g1 -c2 -u`,
			want: "00000000: 6865 6c6c 6f0a 776f 726c 6400 ff         hello.world..\n616263\nabc\nabcdef\n  0x41, 0x42\n00000000: 01000001                                               A\n00000000: 61 62  ab\n00000002: 63 64  cd\n"},
		{script: `printf 'hello\nworld' | hexdump -C; printf 'abc' | hexdump; head -c 48 /dev/zero | hexdump -C; printf 'a\n' | hexdump -c`,
			want: "00000000  68 65 6c 6c 6f 0a 77 6f  72 6c 64                 |hello.world|\n0000000b\n0000000 6261 0063                              \n0000003\n" +
				"00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n*\n00000030\n0000000   a  \\n                                                        \n0000002\n"},
		{script: `file words.txt d empty.txt; printf '#!/bin/sh\n' > s; file -b s; gzip -c words.txt > g; file -b g; ln -s x l; file l; file utf8.txt`,
			want: "words.txt: ASCII text\nd: directory\nempty.txt: empty\n/bin/sh script, ASCII text executable\ngzip compressed data\nl: symbolic link to x\nutf8.txt: UTF-8 Unicode text\n"},
		{script: `id; id -un; whoami; hostname; uname; df . | wc -l; arch; echo $HOME $UID; ls ~ | wc -l; test -x /bin/sh && echo sh; cat /etc/hostname`,
			want: "uid=1000(user) gid=1000(user) groups=1000(user)\nuser\nuser\nsandbox\nSandbar\n2\nwasm32\n/home/user 1000\n0\nsh\nsandbox\n"},
		{script: `mkfifo p 2>/dev/null; echo $?; date -s @0 2>/dev/null; echo $?; hostname x 2>/dev/null; echo $?; chown root words.txt 2>/dev/null; echo $?; chown user words.txt; echo $?`, want: "1\n1\n1\n1\n0\n"},
		{script: `ls --nope 2>&1; grep --nope 2>&1; sort -Q 2>&1; cat -Z 2>&1; exit 9`, want: "ls: unrecognized option '--nope'\ngrep: unrecognized option '--nope'\nsort: invalid option -- 'Q'\ncat: invalid option -- 'Z'\n", exit: 9},
		{script: `gunzip < words.txt 2>&1; tar xf words.txt 2>&1; echo $?; zcat nope 2>&1`, want: "gunzip: stdin: not in gzip format\ntar: This does not look like a tar archive\n2\nzcat: nope: No such file or directory\n", exit: 1},
		{script: `mkdir evil out; cd evil; ln -s /w/out link; echo bad > f; tar cf ../e.tar link; cd ..; mkdir x; tar xf e.tar -C x; cat > mk.awk <<'E'
BEGIN { print "ok" }
E
awk -f mk.awk; ls out | wc -l`, want: "ok\n0\n"},
		{script: `exec 3<>/dev/tcp/127.0.0.1/80 || echo no network; type nosuch; hash`, want: "", exit: 2},
		{script: `echo a | tee /dev/fd/1 | cat; echo b > /dev/stderr 2>/dev/null; cat /dev/fd/0 <<< c; { echo d >&4; } 4>&1; cat < /dev/stdin <<< e`, want: "a\na\nc\nd\ne\n"},
		{script: `sh -c 'echo $PPID $$ $!' | wc -w; kill -l 15; kill -l TERM; kill -0 $$ && echo alive; kill 99999 2>/dev/null || echo none`, want: "2\nTERM\n15\nalive\nnone\n"},
		{script: `trap 'echo int; exit 5' INT; kill -INT $$; echo never`, want: "int\n", exit: 5},
		{script: `trap 'echo term' TERM; sleep 60 & p=$!; (sleep 0.05; kill -TERM $$) & wait $p; echo "wait $?"; kill $p`, want: "term\nwait 143\n"},
	} {
		got, errs := ours(t, c.script)
		if got.out != c.want || got.exit != c.exit {
			t.Errorf("%s\ngot %d:\n%s\nwant %d:\n%s\nstderr: %s", c.script, got.exit, got.out, c.exit, c.want, errs)
		}
	}
}
