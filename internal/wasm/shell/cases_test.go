package shell

// shellCase is a script whose output and exit status must be those of the
// host's dash, or bash, and GNU utilities.
type shellCase struct {
	name   string
	script string
}

// fixtures are the files in the working directory of every script.
var fixtures = map[string]string{
	"words.txt":    "pear\napple\nfig\nbanana\napple\ncherry\nfig\n",
	"nums.txt":     "10\n9\n2\n33\n1\n-4\n2.5\n",
	"people.csv":   "name,age,city\nann,31,oslo\nbob,25,rome\ncid,47,oslo\ndee,25,bern\n",
	"poem.txt":     "Roses are red,\n  violets are blue,\n\nsugar is sweet,\n\tand so are you.\n",
	"table.txt":    "a 1 x\nb 2 y\nc 3 x\nd 4 z\n",
	"old.txt":      "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n",
	"new.txt":      "one\ntwo and a half\nthree\nfour\nsix\nseven\neight\nnine\n",
	"left.txt":     "1 a\n2 b\n4 d\n",
	"right.txt":    "1 x\n3 y\n4 z\n4 w\n",
	"noeol.txt":    "first\nlast without end",
	"empty.txt":    "",
	"utf8.txt":     "naïve café\nÅngström\n日本語\n",
	"conf.ini":     "[main]\nhost = localhost\nport=8080\n# comment\n[extra]\nport=9\n",
	"d/one.c":      "int main(void) { return 0; }\n",
	"d/two.h":      "#define TWO 2\n",
	"d/sub/x.txt":  "TWO in sub\n",
	"d/sub/.hid":   "hidden\n",
	"d/sub2/y.txt": "y\n",
	"log.txt":      "2024-01-02 ERROR disk full\n2024-01-02 INFO ok\n2024-01-03 WARN slow\n2024-01-03 ERROR net down\n2024-01-04 INFO done\n",
}

var dashCases = []shellCase{
	// The language.
	{name: "quoting", script: `echo a\ b "c  d" 'e  f' "g'h" 'i"j' "\$x \" \\ k" a\
b`},
	{name: "parameters", script: `set -- a "b c" d; echo $# "$1" "$2" "$*" "$@"; shift; echo $1; set --; echo $#`},
	{name: "at and star", script: `f() { echo $#; }; set -- "a b" c ""; f $@; f "$@"; f $*; f "$*"; f x"$@"y; set --; f "$@"; f ""; IFS=,; set -- 1 2 3; echo "$*"`},
	{name: "default values", script: `unset u; e=; s=set; echo "${u-d}" "${u:-d}" "${e-d}" "${e:-d}" "${s-d}" "${u+a}" "${e+a}" "${e:+a}" "${s:+a}"; echo ${u:=new} $u`},
	{name: "error if unset", script: `(echo ${nope:?is missing}) 2>/dev/null; echo $?; (echo ${nope?}) 2>/dev/null; echo $?`},
	{name: "prefix and suffix", script: `p=/usr/lib/x.tar.gz; echo "${p#*/}" "${p##*/}" "${p%.*}" "${p%%.*}" ${#p} "${p#nope}" "${p%"gz"}"`},
	{name: "pattern in variable", script: `x=a*b; p='a*'; echo "${x#$p}" "${x#"$p"}"`},
	{name: "arithmetic", script: `x=5; echo $((x*2+1)) $((x<<3)) $((7/2)) $((-7/2)) $((-7%3)) $((0x1f)) $((017)) $((x>3&&x<9)) $((x==5?10:20)) $((!x)) $((~x)) $(( (1+2)*3 ))`},
	{name: "arithmetic assignment", script: `i=1; echo $((i+=4)) $i $((i*=2)) $i; j=$((i=3)); echo $i $j`},
	{name: "arithmetic in words", script: `a=3; b=a; echo $((a+$a)) $(($a$a)) "$((a))"`},
	{name: "division by zero", script: `(echo $((1/0))) 2>/dev/null; echo $?`},
	{name: "command substitution", script: `x=$(printf 'a\nb\n\n'); echo "[$x]"; echo $(echo $(echo deep)); echo "$(echo "in $(echo "q q")")"; echo ` + "`echo old \\`echo nested\\``"},
	{name: "substitution status", script: `x=$(exit 3); echo $?; x=$(false) y=1; echo $?; echo $(exit 4); echo $?`},
	{name: "field splitting", script: `x='a  b	c
d'; for w in $x; do echo "[$w]"; done; IFS=:; y='a::b: c:'; for w in $y; do echo "<$w>"; done`},
	{name: "splitting with spaces in IFS", script: `IFS=' :'; x=' a : b::c '; for w in $x; do echo "[$w]"; done; set -- $x; echo $#`},
	{name: "empty IFS", script: `IFS=; x='a b'; for w in $x; do echo "[$w]"; done`},
	{name: "globs", script: `echo *.txt; echo d/*.c d/s*/; echo nope*; echo d/sub/*; echo d/sub/.h*; echo [a-l]*.txt; echo [!a-t]*; echo ?eft.txt; echo "*" '*' \*`},
	{name: "globs in directories", script: `echo */sub/*.txt; echo d/*/*.txt; cd d; echo *; echo ./*`},
	{name: "noglob", script: `set -f; echo *.txt; set +f; echo p*.txt`},
	{name: "tilde", script: `HOME=/h; echo ~ ~/x "~" \~ a~; x=~/y; echo $x; P=a:~/b; echo $P`},
	{name: "if", script: `if true; then echo 1; fi; if false; then echo 2; elif true; then echo 3; else echo 4; fi; if false; then :; fi; echo $?`},
	{name: "for", script: `for i in 1 2 3; do echo $i; done; for x; do echo $x; done; for i in; do echo never; done; echo $?`},
	{name: "while and until", script: `i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done; until [ $i -eq 0 ]; do i=$((i-1)); done; echo $i`},
	{name: "break and continue", script: `for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done; for i in 1 2; do for j in a b c; do [ $j = b ] && continue 2; [ $i = 2 ] && break 2; echo $i$j; done; done; echo end`},
	{name: "case", script: `for x in apple 'a b' x5 '*' ''; do case $x in a[pq]*) echo 1;; "a b") echo 2;; ?[0-9]|zz) echo 3;; \*) echo 4;; '') echo 5;; esac; done; case x in y) ;; esac; echo $?`},
	{name: "functions", script: `f() { echo "f $1 $#"; return 7; }; f a b; echo $?; g() { f x; }; g; h() { x=inner; }; x=outer; h; echo $x`},
	{name: "local", script: `f() { local x=1 y; y=2; echo $x$y; g; }; g() { echo g$x; }; x=9; f; echo $x "${y-unset}"`},
	{name: "recursion", script: `fact() { if [ $1 -le 1 ]; then echo 1; else echo $(( $1 * $(fact $(($1-1))) )); fi; }; fact 10`},
	{name: "subshell", script: `x=1; (x=2; cd /; echo $x); echo $x; (exit 5); echo $?; ( (echo nested) )`},
	{name: "braces group", script: `{ echo a; echo b; } | tr a-z A-Z; { x=5; }; echo $x`},
	{name: "and or", script: `true && echo 1 || echo 2; false && echo 3 || echo 4; false || false || echo 5; ! true; echo $?; ! false && echo 6`},
	{name: "pipelines", script: `printf 'b\na\nc\n' | sort | head -n 2 | while read x; do echo "<$x>"; done; x=1; echo 2 | read x; echo $x; false | true; echo $?; true | false; echo $?`},
	{name: "heredoc", script: `x=val; cat <<E
$x \$x $(echo cmd) ` + "`echo bq`" + ` "q" 'q' $((1+1)) a\
b
E
cat <<'E'
$x $(no)
E
cat <<-E
	tabs
		gone
	E
cat <<A; cat <<B
one
A
two
B`},
	{name: "heredoc in loops", script: `for i in 1 2; do cat <<E; done
i=$i
E
while read a b; do echo "$b-$a"; done <<E
1 2
3 4 5
E`},
	{name: "redirections", script: `echo a > f1; echo b >> f1; cat < f1; echo c >| f1; cat f1; { echo out; echo err >&2; } > f2 2>&1; cat f2; { echo o; echo e >&2; } 2> f3 | cat; cat f3; : > f1; wc -c < f1`},
	{name: "more descriptors", script: `exec 3> f; echo three >&3; exec 3>&-; cat f; exec 4< f; read x <&4; echo "$x"; exec 4<&-; { echo a >&5; } 5> g; cat g; { { echo x >&3; echo y; } 3>&1 >/dev/null; }; echo z 2>&1 1>/dev/null; echo s 3>&1 1>&2 2>&3`},
	{name: "read and write", script: `echo hello > f; exec 3<> f; read x <&3; echo $x; echo more >&3; exec 3>&-; cat f`},
	{name: "noclobber", script: `set -C; echo a > f; (echo b > f) 2>/dev/null || echo refused; echo c >| f; cat f`},
	{name: "redirection fails", script: `echo x > nodir/f || echo failed $?; cat < nope || echo failed $?; { echo never; } < nope; echo $?`},
	{name: "errexit", script: `set -e; false || true; if false; then :; fi; ! true; echo here; (false; echo no); echo never`},
	{name: "errexit in functions", script: `set -e; f() { false; echo in-f; }; f || echo caught; f; echo never`},
	{name: "errexit and substitutions", script: `set -e; x=$(false; echo y); echo "[$x]"; y=$(false); echo never`},
	{name: "nounset", script: `set -u; x=1; echo ${x} ${y-d}; (echo $nope) 2>/dev/null; echo $?; echo "$@" $#; echo $nope; echo never`},
	{name: "xtrace goes to stderr", script: `set -x; echo a; x=5; set +x; echo b`},
	{name: "exit trap", script: `trap 'echo bye $?' EXIT; (trap 'echo sub' EXIT; echo in); echo out; exit 3`},
	{name: "signal trap", script: `trap 'echo got' USR1; kill -USR1 $$; echo after; trap - USR1; trap '' TERM; kill -TERM $$; echo alive`},
	{name: "killed by a signal", script: `sh -c 'kill -TERM $$; echo no'; echo $?; sh -c 'exit 300'; echo $?`},
	{name: "background", script: `(echo bg > f) & wait; cat f; (exit 4) & wait $!; echo $?; { while [ ! -f go ]; do sleep 0.01; done; echo slow; } & echo fast; : > go; wait; wait; echo $?`},
	{name: "kill a job", script: `sleep 30 & p=$!; kill $p; wait $p; echo $?; kill -0 $p 2>/dev/null || echo gone`},
	{name: "eval", script: `x='echo "a b"'; eval $x; y=z; eval "$y=5"; echo $z; eval 'for i in 1 2; do echo $i; done'; eval; echo $?`},
	{name: "dot", script: `echo 'echo sourced; V=1; return 3; echo no' > s.sh; . ./s.sh; echo $? $V`},
	{name: "command and type", script: `command -v cd; command -v nope; echo $?; f() { :; }; command -v f; command echo x; echo() { printf 'mine\n'; }; echo a; command echo b`},
	{name: "sh -c", script: `sh -c 'echo $0 $1 $#' zero one two; sh -c 'exit 9'; echo $?; sh -ec 'false; echo no'; echo $?; echo 'echo from stdin $1' | sh -s arg; X=1 sh -c 'echo $X'; x=2 ; sh -c 'echo "[$x]"'`},
	{name: "scripts", script: `printf '#!/bin/sh\necho "script $0 $1"\n' > s.sh; ./s.sh a 2>/dev/null; echo $?; chmod +x s.sh; ./s.sh a; sh s.sh b; printf 'echo plain\n' > p; chmod 755 p; ./p`},
	{name: "not found", script: `nope-cmd 2>/dev/null; echo $?; ./nope 2>/dev/null; echo $?; mkdir dd; ./dd 2>/dev/null; echo $?; echo x > nx; ./nx 2>/dev/null; echo $?`},
	{name: "environment", script: `A=1; export B=2; C=3 env | grep '^[ABC]=' | sort; env -i D=4 env; unset B; env | grep -c '^B='; readonly R=1; (R=2) 2>/dev/null; echo $?`},
	{name: "assignments before commands", script: `f() { echo "[$X]"; }; X=5 f; echo "[$X]"; X=1; X=2 true; echo $X; X=3 eval 'echo $X'`},
	{name: "getopts", script: `set -- -a -bval -c x rest; while getopts ab:c: o; do echo "$o=$OPTARG"; done; shift $((OPTIND-1)); echo $*; OPTIND=1; set -- -z; getopts :ab o; echo $o $OPTARG; OPTIND=1; set -- -ab; getopts ab o; echo $o; getopts ab o; echo $o; getopts ab o; echo $? $o`},
	{name: "read", script: `printf 'a b c\n  x  y  \n1:2:3\nba\\\nck\nlast' | { read x y; echo "$x|$y"; read z; echo "[$z]"; IFS=: read a b; echo "$a|$b"; read w; echo $w; read l; echo $? $l; }`},
	{name: "read raw", script: `printf 'a\\tb\\\nnext\n' | { read -r x; printf '%s\n' "$x"; read y; echo "$y"; }; printf 'one:two\n' | { IFS=: read -r a b c; echo "$a-$b-$c"; }; echo ' lead' | { IFS= read -r l; echo "[$l]"; }`},
	{name: "test", script: `t() { "$@"; echo $?; }; t test; t test a; t test ''; t test -n ''; t test -z ''; t test a = a; t test a != a; t test 1 -lt 2; t test 10 -gt 9; t test ! a; t test -f words.txt; t test -d d; t test -s empty.txt; t test -e nope; t test -x d; t test a -a ''; t test '' -o b; t test '(' a ')'; t [ 3 -ge 3 ]`},
	{name: "test errors", script: `test 1 -eq x 2>/dev/null; echo $?; [ a 2>/dev/null; echo $?; test a b c 2>/dev/null; echo $?`},
	{name: "test files", script: `ln -s words.txt l; test -L l && echo link; test -h l && echo link; touch -d '2020-01-01' o; touch n; test n -nt o && echo newer; test o -ot n && echo older; test l -ef words.txt && echo same; test -r words.txt && echo r`},
	{name: "printf", script: `printf '%s %d %05d %x %X %o %c %%\n' str 42 7 255 255 8 char; printf '%5s|%-5s|%.2s\n' ab cd efg; printf '%s\n' a b c; printf '%d-%d\n' 1 2 3; printf 'no newline'; printf '\n\t|\101|\\\n'`},
	{name: "printf numbers", script: `printf '%i %u %+d % d\n' 5 6 7 8; printf '%.3f %e %g %G\n' 3.14159 1234.5 0.0001 1e10; printf '%d %d\n' 0x10 010; printf '%*d\n' 6 42; printf '%#x %#o\n' 255 8`},
	{name: "printf escapes", script: `printf '%b|' 'a\tb' 'c\0101' 'x\cy' z; echo; printf '%s|\n' 'a\tb'; printf "%d\n" "'A"; printf '\061\n'`},
	{name: "printf problems", script: `printf '%d\n' abc 2>/dev/null; echo $?; printf '%d\n' 12x 2>/dev/null; echo $?; printf '%s %d\n'`},
	{name: "echo", script: `echo; echo -n no; echo ' newline'; echo a  b; echo "a  b"`},
	{name: "cd and pwd", script: `cd d/sub; basename "$(pwd)"; cd ..; basename "$PWD"; cd - >/dev/null; basename "$PWD"; cd nope 2>/dev/null; echo $?; ln -s sub2 ../lk; cd ../lk; basename $(pwd); basename $(pwd -P); cd ..; basename $PWD`},
	{name: "umask", script: `umask 027; umask; touch f; mkdir g; stat -c %a f g; umask u=rwx,g=rx,o=; umask; (umask 0); umask`},
	{name: "set and unset", script: `x=1; unset x; echo "${x-gone}"; f() { echo f; }; unset -f f; f 2>/dev/null; echo $?; set -- a b; set -e; case $- in *e*) echo has-e;; esac; set +e`},
	{name: "alias", script: "alias hi='echo hello'\nhi there\nunalias hi\nhi 2>/dev/null\necho $?"},
	{name: "comments and newlines", script: "echo a # comment\n# whole line\necho 'b # not'\necho c#d\n\n;: \necho e\n" + "if true # x\nthen # y\necho f\nfi"},
	{name: "function without a name", script: "echo before\n()0\necho after"},
	{name: "function without a name inside", script: "echo before\nif true; then { ()1 a; }; fi\necho after"},
	{name: "syntax error", script: "echo before\nif true; then echo x\n"},
	{name: "line continuation", script: "echo a \\\n b && \\\n echo c\necho x |\n cat"},
	{name: "nested quotes in parameters", script: `x=; echo "${x:-"a b"}" ${x:-'c  d'} "${x:-$(echo "e  f")}" ${x:-a b}; y='1 2'; echo "${x:-$y}" ${x:-"$y"}`},
	{name: "special characters", script: `x='$HOME ` + "`ls`" + ` \ "'; echo "$x"; printf '%s\n' "$x"; echo a\;b 'c;d' e\&f g\|h \#i`},
	{name: "times of signals in pipes", script: `yes | head -n 3; (yes; echo $? >&2) 2>/dev/null | head -n 1; seq 1000000 | head -n 1; cat /dev/zero | head -c 5 | wc -c`},
	{name: "while read with pipes inside", script: `while read x; do echo "$x" | tr a-z A-Z; done < words.txt | head -n 3`},
	{name: "exec", script: `(exec echo replaced; echo no); exec 6>&1; exec > f; echo hidden; exec >&6 6>&-; echo shown; cat f`},
	{name: "wait for all in a function", script: `f() { for i in 1 2 3; do (sleep 0.0$i; echo $i > o$i) & done; wait; cat o1 o2 o3; echo all; }; f`},
	{name: "return value of the last", script: `false; true; echo $?; (false); echo $?; x=1; echo $?; f() { return; }; false; f; echo $?`},

	// Utilities.
	{name: "cat", script: `cat words.txt noeol.txt; echo; cat -n poem.txt; cat -A poem.txt; cat -s - <<E
a


b
E
echo x | cat - words.txt | head -n 2; cat -b poem.txt; cat nope 2>/dev/null; echo $?`},
	{name: "head and tail", script: `head -n 2 words.txt; head -2 words.txt; head -c 5 words.txt; echo; head -n -5 words.txt; tail -n 2 words.txt; tail -n +6 words.txt; tail -3 words.txt; tail -c 4 words.txt; head -n 1 words.txt nums.txt; tail -qn1 words.txt nums.txt; head -n1 noeol.txt; tail -n1 noeol.txt`},
	{name: "head leaves the rest", script: `{ head -n 1 >/dev/null; head -n 1; cat | wc -l; } < words.txt`},
	{name: "wc", script: `wc words.txt; wc -l words.txt; wc < words.txt; wc -lw words.txt poem.txt; wc -m utf8.txt; wc -c utf8.txt; wc -L poem.txt; wc -l < empty.txt; echo -n abc | wc -lc`},
	{name: "sort", script: `sort words.txt; sort -r words.txt; sort -u words.txt; sort -n nums.txt; sort -nr nums.txt; sort nums.txt; sort -t, -k2n people.csv; sort -t, -k2,2nr -k1,1 people.csv; sort -k3,3 -k1,1r table.txt; sort -c words.txt 2>/dev/null; echo $?; sort -o out words.txt; cat out`},
	{name: "sort more", script: `printf 'b\nA\na\nB\n' | sort -f; printf '2K\n1M\n10\n' | sort -h; printf 'v1.10\nv1.9\nv1.2\n' | sort -V; printf 'a\n b\n  a\n' | sort -b; printf '1e2\n5\n' | sort -g; printf 'mar\njan\ndec\n' | sort -M; sort -s -k1.2,1.2 words.txt; printf 'x y\nx a\n' | sort -s -k1,1; printf 'b\0a\0' | sort -z | tr '\0' '\n'`},
	{name: "uniq", script: `sort words.txt | uniq; sort words.txt | uniq -c; sort words.txt | uniq -d; sort words.txt | uniq -u; printf 'a 1\nb 1\nc 2\n' | uniq -f1; printf 'A\na\n' | uniq -i; printf 'xa\nxb\n' | uniq -w1; printf 'ab\ncb\n' | uniq -s1`},
	{name: "cut", script: `cut -d, -f1,3 people.csv; cut -c1-3 words.txt; cut -c2- words.txt; cut -d' ' -f2 table.txt; cut -d, -f2- people.csv; echo abc | cut -d, -f2; echo abc | cut -d, -f2 -s; cut -b1,3 words.txt; echo a:b:c | cut -d: -f1,3 --output-delimiter=-; echo a,b,c | cut -d, -f2 --complement`},
	{name: "tr", script: `echo hello | tr a-z A-Z; echo hello | tr -d l; echo aabbcc | tr -s b; echo hello | tr -c a-z_ '_'; echo; echo 'a b' | tr ' ' '\n'; echo hello | tr '[:lower:]' '[:upper:]'; echo abc | tr abc x; echo abc | tr -cd 'a\n'; echo 'x1y2' | tr -d '[:digit:]'; echo abc | tr a-c '[x*]'; echo aab | tr -s ab xy`},
	{name: "paste", script: `paste words.txt nums.txt; paste -d, words.txt nums.txt; paste -s words.txt; paste -sd+ nums.txt; seq 6 | paste - - -; paste -d'\n' left.txt right.txt`},
	{name: "nl", script: `nl poem.txt; nl -ba poem.txt; nl -w3 -s: words.txt; nl -v10 -i5 left.txt; nl -nrz -w4 left.txt`},
	{name: "rev and tac", script: `rev words.txt; tac words.txt; tac noeol.txt; echo; rev utf8.txt`},
	{name: "comm and join", script: `sort words.txt | uniq > a; printf 'apple\nfig\nzoo\n' > b; comm a b; comm -12 a b; comm -3 a b; join left.txt right.txt; join -a1 left.txt right.txt; join -v2 left.txt right.txt; join -o 1.2,2.2 left.txt right.txt; join -a1 -a2 -e- -o 0,1.2,2.2 left.txt right.txt`},
	{name: "fold", script: `echo 'the quick brown fox jumps' | fold -w 10; echo 'the quick brown fox jumps' | fold -sw 10; printf 'a\tb\n' | fold -w 4; echo abcdef | fold -b -w 4`},
	{name: "expand", script: `printf 'a\tb\tc\n' | expand; printf 'a\tb\n' | expand -t 4; printf '\tx\ty\n' | expand -i; printf '        a       b\n' | unexpand; printf '        a       b\n' | unexpand -a; printf 'a\tb\tc\n' | expand -t 3,9`},
	{name: "split", script: `split -l 3 words.txt; for f in x*; do echo "$f:"; cat $f; done; split -b 10 words.txt p_; ls p_*; split -l 4 -d words.txt n; ls n0*; split -a 3 -l 5 words.txt q; ls q*`},
	{name: "seq", script: `seq 3; seq 2 4; seq 1 3 10; seq 5 -2 1; seq -s, 3; seq -w 8 11; seq 0.5 0.5 2; seq 3 1; seq -f '%03g' 2; seq 1 0.1 1.3; seq -w 1 0.5 2; seq -- -2 1`},
	{name: "tee", script: `echo x | tee a b; cat a b; echo y | tee -a a >/dev/null; cat a; echo z | tee nodir/f 2>/dev/null; echo $?`},
	{name: "basename and dirname", script: `basename /a/b.txt; basename /a/b.txt .txt; basename a; basename /; basename a/; basename -a x/y z/w; basename -s .c a.c b.c; dirname /a/b; dirname a; dirname /a; dirname a/b/; dirname /; dirname a//b; dirname ./x`},
	{name: "realpath and readlink", script: `mkdir -p r/s; ln -s r/s l; ln -s nowhere dang; readlink l; readlink words.txt; echo $?; readlink dang; basename $(readlink -f l); realpath --relative-to=. l; realpath -m --relative-to=. x/../y; realpath nope/x 2>/dev/null; echo $?; readlink -f nope >/dev/null; echo $?; readlink -e nope; echo $?`},
	{name: "ls", script: `ls; ls d; ls -a d/sub; ls -A d/sub; ls -d d; ls -1 d d/sub; ls -r *.txt; ls -R d; ls nope 2>/dev/null; echo $?; ls -p; ls -F d; ls -S left.txt words.txt poem.txt; ls -m d; ls -d */`},
	{name: "ls long", script: `chmod 640 words.txt; mkdir -m 755 dir; ln -s words.txt ln; ls -l words.txt | cut -c1-10; ls -ld dir | cut -c1-10; ls -l ln | sed 's/.* ln/ln/'; touch -d '2001-02-03 04:05' old; ls -l old | awk '{print $5,$6,$7,$8,$9}'; chmod 7777 old; ls -l old | cut -c1-10; chmod 7000 old; ls -l old | cut -c1-10`},
	{name: "cp", script: `cp words.txt c1; cmp words.txt c1 && echo same; mkdir t; cp words.txt nums.txt t; ls t; cp -r d e; find e | sort; cp d x 2>/dev/null; echo $?; cp nope y 2>/dev/null; echo $?; cp -p words.txt c2; test c2 -nt words.txt || echo kept; ln -s words.txt l; cp l l2; test -L l2 || echo file; cp -P l l3; test -L l3 && echo link; cp -n nums.txt c1; cmp -s words.txt c1 && echo unchanged; cp -t t c1; ls t; cp -v c1 c9`},
	{name: "cp into itself", script: `cp -r d d/sub 2>/dev/null; echo $?; cp words.txt words.txt 2>/dev/null; echo $?; cp words.txt d/sub2; mkdir z; cp -r d/sub2 z; cp -r d/sub2 z/new; find z | sort`},
	{name: "mv", script: `mv words.txt w; ls w; mkdir m; mv w nums.txt m; ls m; mv m n; ls n; mv nope x 2>/dev/null; echo $?; mv n/w n/nums.txt . ; ls n | wc -l; mv n n/x 2>/dev/null; echo $?; echo a > a; echo b > b; mv -n a b; cat b; mv -f a b; cat b; mv -v b c`},
	{name: "rm", script: `rm words.txt; ls words.txt 2>/dev/null; rm nope 2>/dev/null; echo $?; rm -f nope; echo $?; rm d 2>/dev/null; echo $?; rm -r d; ls d 2>/dev/null; echo $?; mkdir x; rm -d x; touch -- -f; rm -- -f; ls -- -f 2>/dev/null; rm -v left.txt; ln -s right.txt l; rm l; ls right.txt`},
	{name: "mkdir and rmdir", script: `mkdir a; mkdir a 2>/dev/null; echo $?; mkdir -p a/b/c; mkdir -p a/b/c; echo $?; mkdir x/y 2>/dev/null; echo $?; rmdir a 2>/dev/null; echo $?; rmdir a/b/c; rmdir -p a/b; ls -d a 2>/dev/null; mkdir -m 700 s; stat -c %a s; mkdir -v v`},
	{name: "ln", script: `ln words.txt h; stat -c %h words.txt; ln -s words.txt s; cat s | head -n1; ln -s words.txt s 2>/dev/null; echo $?; ln -sf nums.txt s; readlink s; ln nope x 2>/dev/null; echo $?; mkdir t; ln -s ../words.txt t; cat t/words.txt | head -n1; ln -sfn d t2; ln -sfn d/sub t2; readlink t2`},
	{name: "touch", script: `touch a; test -f a && echo made; touch -c b; test -f b || echo none; touch -d '2020-05-06 07:08:09' a; date -u -r a +%FT%T; touch -t 202101020304.05 a; date -u -r a +%FT%T; touch -r a c; stat -c %Y c; touch -d @86400 c; stat -c %Y c`},
	{name: "chmod", script: `touch f; chmod 600 f; stat -c %a f; chmod u+x f; stat -c %a f; chmod go=r f; stat -c %a f; chmod a-r f; stat -c %a f; chmod +w f; stat -c %a f; chmod u=rwX,g=u,o= f; stat -c %a f; chmod -R 755 d; stat -c %a d d/one.c; chmod 9 f 2>/dev/null; echo $?; chmod g+s,+t d; stat -c %a d`},
	{name: "stat", script: `stat -c '%n %s %F' words.txt d empty.txt; ln -s x l; stat -c %N l; stat -c '%A %a' words.txt; stat -c '%i' words.txt | grep -c '^[0-9]*$'; stat nope 2>/dev/null; echo $?`},
	{name: "du and truncate", script: `truncate -s 100 t; wc -c < t; truncate -s 5 words.txt; cat words.txt; echo; truncate -s +3 t; wc -c < t; du -b words.txt | cut -f1; truncate -s 1K k; stat -c %s k`},
	{name: "find", script: `find d | sort; find d -name '*.txt' | sort; find d -type d | sort; find . -maxdepth 1 -name '*s.txt' | sort; find d -type f ! -name '*.txt' | sort; find d \( -name '*.c' -o -name '*.h' \) | sort; find d -mindepth 2 -type f | sort; find nope 2>/dev/null; echo $?; find d -empty; find . -name empty.txt -empty; find d -path '*sub/*' | sort`},
	{name: "find actions", script: `find d -name '*.txt' -exec echo got {} \; | sort; find d -name '*.txt' -exec echo {} + | tr ' ' '\n' | sort; find d -name '*.h' -print -delete; ls d; find d -name sub -prune -o -type f -print | sort; find . -name 'n*.txt' -printf '%f %s %m\n' | sort; find d -type f -print0 | tr '\0' '\n' | sort; find . -size -1 -name '*.txt'; find . -newer nope 2>/dev/null; echo $?; find . -maxdepth 1 -type f -size +100c | sort`},
	{name: "xargs", script: `cat words.txt | xargs; cat words.txt | xargs -n 2; echo a b c | xargs -I{} echo "<{}>"; printf 'a b\nc\n' | xargs -I{} echo "<{}>"; echo "'a b' c\ d" | xargs -n1 echo; printf 'x\0y z\0' | xargs -0 -n1 echo; xargs echo none < empty.txt; xargs -r echo none < empty.txt; echo 1 | xargs false; echo $?; echo a | xargs nope 2>/dev/null; echo $?; seq 5 | xargs -L2 echo; echo a,b | xargs -d, -n1 echo`},
	{name: "xargs and sh", script: `printf 'a\nb\n' | xargs -I{} sh -c 'echo "run {}"; exit 0'; find d -name '*.txt' | sort | xargs cat; seq 3 | xargs -n1 sh -c 'echo $0 $1' n`},
	{name: "grep", script: `grep apple words.txt; grep -n fig words.txt; grep -c a words.txt; grep -v a words.txt; grep -i ROSES poem.txt; grep nope words.txt; echo $?; grep -q fig words.txt; echo $?; grep -l port *.ini *.txt; grep -o 'an' words.txt; grep -h TWO d/two.h d/sub/x.txt; grep TWO d/two.h d/sub/x.txt; grep x nofile 2>/dev/null; echo $?`},
	{name: "grep expressions", script: `grep -E 'a(p|n)' words.txt; grep 'a\(p\|n\)' words.txt; grep -F 'a.' words.txt; echo $?; grep '^[a-c]' words.txt; grep 'e$' words.txt; grep -E '^.{4}$' words.txt; grep '^.\{3\}$' words.txt; grep -E 'p+' words.txt; grep 'p\+' words.txt; grep -w are poem.txt; grep -x fig words.txt; grep -E '\bso\b' poem.txt; grep '[[:upper:]]' poem.txt; grep '[[:space:]]and' poem.txt; grep -e apple -e fig words.txt; grep -E '(a)(n)\1\2' words.txt; grep '\(an\)\1' words.txt; grep -E 'x*' empty.txt; echo $?`},
	{name: "grep context", script: `grep -A1 banana words.txt; grep -B1 banana words.txt; grep -C1 -n cherry words.txt; grep -A1 fig words.txt; grep -m1 fig words.txt; grep -nb fig words.txt; grep -r TWO d | sort; grep -rl TWO d | sort; grep -rn --include='*.h' TWO d; grep -L apple words.txt nums.txt; grep -c apple words.txt nums.txt; grep -f left.txt table.txt; echo $?; printf 'apple\nfig\n' > pats; grep -vf pats words.txt; grep -on 'p' words.txt`},
	{name: "grep more", script: `grep -E '^$' poem.txt | wc -l; grep -vc '^$' poem.txt; grep -E 'a|b' table.txt; grep -E 'ERROR|WARN' log.txt | grep -v net; grep '\.' nums.txt; grep -F -e '-4' nums.txt; grep -- -4 nums.txt; echo 'a.b*c' | grep -F '.b*'; echo 'foo(bar)' | grep 'foo(bar)'; echo 'foo(bar)' | grep -E 'foo\(bar\)'; grep -iw 'ROSES' poem.txt; echo aXbXc | grep -o '[^X]*'; echo 'a{2}' | grep 'a{2}'; echo aa | grep -E 'a{2}'; echo ab | grep -E 'a{,2}b'; printf 'a\tb\n' | grep -P '\t' | wc -l; echo x | grep -E '(' 2>/dev/null; echo $?`},
	{name: "sed substitute", script: `sed 's/a/A/' words.txt; sed 's/a/A/g' words.txt; sed 's/a/A/2' words.txt; sed -n 's/pp/PP/p' words.txt; sed 's/\(.\)\(.\)/\2\1/' words.txt; sed -E 's/(.)(.)/\2\1/' words.txt; sed 's/.*/[&]/' words.txt; sed 's/x*/-/g' left.txt; echo a/b | sed 's|/|:|'; sed 's/APPLE/x/I' words.txt; echo hello | sed 's/l/L/2g'; echo abc | sed 's/b/\n/'; echo 'a.b' | sed 's/\./-/'; echo aaa | sed 's/a/b/3'`},
	{name: "sed case", script: `echo 'hello world' | sed 's/\w\+/\u&/g'; echo Hello | sed 's/.*/\U&/'; echo HELLO | sed 's/\(.\)\(.*\)/\1\L\2/'; echo 'ab cd' | sed -E 's/(\w+) (\w+)/\U\1\E \2/'`},
	{name: "sed addresses", script: `sed -n 2p words.txt; sed -n '2,4p' words.txt; sed -n '$p' words.txt; sed 2d words.txt; sed '2,$d' words.txt; sed '/apple/d' words.txt; sed -n '/fig/,/cherry/p' words.txt; sed -n '/banana/,$p' words.txt; sed '2!d' words.txt; sed -n '1~2p' words.txt; sed -n '2,+1p' words.txt; sed -n '/fig/=' words.txt; sed -n '$=' words.txt; sed -n '0,/fig/p' words.txt; sed -n '2,1p' words.txt; sed '/^$/d' poem.txt; sed -n '\,apple,p' words.txt; sed -n '/a/{/p/p}' words.txt; sed -n '2,~4p' words.txt`},
	{name: "sed text", script: `sed '2i\
inserted' left.txt; sed '2a\
appended' left.txt; sed '2c\
changed' left.txt; sed '1i first' left.txt; sed '$a last' left.txt; sed '2c new' left.txt; sed '1,2c both' left.txt; sed 'a\  indented' left.txt; sed '1r right.txt' left.txt; sed '1w out' left.txt >/dev/null; cat out; sed 'y/abc/xyz/' table.txt; sed -n '1{p;q}' words.txt; sed 3q words.txt; sed '2q5' words.txt; echo $?`},
	{name: "sed hold space", script: `sed -n '1!G;h;$p' words.txt; sed G left.txt; sed 'x;p;x' left.txt; sed -n 'H;${x;s/\n/,/g;p}' left.txt; sed '$!N;s/\n/ /' words.txt; sed 'N;P;D' left.txt; sed -n 'N;N;s/\n/+/gp' words.txt; sed '1!{h;d};G' left.txt; sed -n 'h;n;G;p' left.txt`},
	{name: "sed branches", script: `echo aaabbb | sed ':a;s/ab/b/;ta'; sed ':a;N;$!ba;s/\n/,/g' words.txt; echo 1234567 | sed -E ':a;s/^([0-9]+)([0-9]{3})/\1,\2/;ta'; sed '/fig/b;s/^/> /' words.txt; sed 's/a/A/;T;s/$/!/' words.txt; sed -n '/a/!b e;p;:e' words.txt; sed '/banana/{n;d}' words.txt`},
	{name: "sed options", script: `sed -e 's/a/1/' -e 's/p/2/' words.txt; printf 's/a/X/\n2d\n' > p.sed; sed -f p.sed words.txt; cp words.txt w; sed -i 's/fig/FIG/' w; cat w; sed -i.bak 1d w; cat w.bak | head -n1; head -n1 w; sed -s -n '1p' left.txt right.txt; sed -n '1p' left.txt right.txt; sed -n '$p' left.txt right.txt; sed -n l poem.txt; sed s/x/y/ noeol.txt; echo; sed 'zz' words.txt 2>/dev/null; echo $?; sed s/a/b nope 2>/dev/null; echo $?; sed = left.txt; sed -n '/oslo/{s/,.*//;p}' people.csv; printf 'a,b\0c,d\0' | sed -z 's/,/-/' | tr '\0' '\n'`},
	{name: "sed regex", script: `echo 'a  b   c' | sed 's/  */ /g'; echo 'key = value' | sed -E 's/^([^ ]*) *= *(.*)$/\2=\1/'; echo abcabc | sed -E 's/(abc)\1/twice/'; echo 'x[1]' | sed 's/\[1\]/!/'; echo 'a]b' | sed 's/[]]/-/'; echo 'a-b_c' | sed 's/[-_]/./g'; echo 'tab	here' | sed 's/\t/<TAB>/'; echo 'foo bar' | sed 's/\bbar\b/X/'; echo ' trim me ' | sed 's/^ *//;s/ *$//;s/^/[/;s/$/]/'; echo aXb | sed 's/[[:upper:]]/_/'; echo 'a+b' | sed 's/a+b/ok/'; echo 'a+b' | sed -E 's/a\+b/ok/'; echo abc | sed 's/b*$/-/'; echo baaac | sed 's/a*/x/2'; echo hello | sed 's/\(l\)\(l\)/<\1\2>/'`},
	{name: "awk basics", script: `awk '{print $2}' table.txt; awk -F, '{print $1, $3}' people.csv; awk 'NR==2' words.txt; awk '/a/' words.txt; awk 'END{print NR}' words.txt; awk '{print NF}' poem.txt; awk '$2>2' table.txt; awk 'BEGIN{print 1+2*3, 7%3, 2^10, 10/4}'; awk '{s+=$2} END{print s, s/NR}' table.txt; awk 'NR>1 && NR<4{print NR": "$0}' words.txt; awk '!seen[$0]++' words.txt; awk '{print $NF}' poem.txt; awk -F, 'NR>1{print $2|"sort -n"}' people.csv`},
	{name: "awk arrays", script: `awk -F, 'NR>1{c[$3]++} END{for(k in c) print k, c[k]}' people.csv | sort; awk 'BEGIN{a["x"]=1; print ("x" in a), ("y" in a); delete a["x"]; print ("x" in a), length(a)}'; awk 'BEGIN{a[1,2]=3; for(k in a){split(k,p,SUBSEP); print p[1], p[2]}; print ((1,2) in a)}'; awk 'BEGIN{n=split("a:b:c",x,":"); print n, x[1], x[3]; n=split("",y); print n; n=split("a1b22c",z,/[0-9]+/); print n, z[2]}'`},
	{name: "awk strings", script: `awk 'BEGIN{print length("hello"), substr("hello",2,3), substr("hello",4), substr("hello",5,9), substr("hello",-1), index("hello","l"), toupper("aBc"), tolower("AbC")}'; awk 'BEGIN{s="hello world"; gsub(/o/,"0",s); print s; sub(/l+/,"[&]",s); print s; print gsub(/x/,"y",s), s; t="a.b.c"; gsub(".","x",t); print t; u="a.b.c"; gsub("\\.","-",u); print u; v="aaa"; gsub(/a/,"\\&",v); print v}'; awk 'BEGIN{print match("foobar",/o+/), RSTART, RLENGTH; print match("x",/y/), RSTART, RLENGTH}'; awk 'BEGIN{print "a" "b" 1 2, 1 " " 2; x = "A" ; x = x "B"; print x}'`},
	{name: "awk printf", script: `awk 'BEGIN{printf "%d %5d|%-5d|%05d %x %o %c %s %5.2f %e %g %%\n", 3.9, 42, 42, 42, 255, 8, 65, "str", 3.14159, 1234.5, 0.00001; printf("%s-%s\n", "a", "b"); printf "%*d|%-*d|\n", 5, 42, 5, 42; printf "%i\n", "12abc"; printf "%.3s|\n", "abcdef"}'`},
	{name: "awk numbers", script: `awk 'BEGIN{print 1e6, 1000*1000, 0.1+0.2, 1/3, 100/3, 2^30, -1, 1e300*1e10 > "/dev/stdout"; print 3 == "3", "3" == 3.0, "a" < "b", 10 < 9, "10" < "9"; print int(3.9), int(-3.9), int("4x"), sqrt(16), exp(0), log(1), sin(0), cos(0), atan2(0,-1); print 017, 1==1.0, "1"+1, -"3", !0, !"", !"a", !1; OFMT="%.2f"; print 3.14159, 3.14159 ""; CONVFMT="%.3f"; x = 3.14159 ""; print x}'; echo '10 9 abc 10.0' | awk '{print ($1>$2), ($1<$3), ($1==$4)}'`},
	{name: "awk control", script: `awk 'BEGIN{for(i=0;i<3;i++) print i; while(i>0){i--; if(i==1) continue; print "w" i}; do {print "d"; i++} while(i<2); for(;;){if(++n>3) break}; print n; if(n==4) print "yes"; else print "no"; exit 3; print "never"} END{print "end"}'; echo $?; awk '{if(NR==2) next; if(NR==4) exit; print}' words.txt; awk 'function f(a,b){b=a*2; return b+1} BEGIN{print f(3), f("4")}'; awk 'function fill(arr,n, i){for(i=1;i<=n;i++)arr[i]=i*i} BEGIN{fill(sq,3); print sq[1],sq[2],sq[3]}'; awk 'function fib(n){return n<2?n:fib(n-1)+fib(n-2)} BEGIN{print fib(15)}'`},
	{name: "awk fields", script: `echo 'a b c' | awk '{$2="X"; print; print NF; $5="e"; print; print NF; NF=2; print}'; echo 'a:b' | awk -F: -v OFS=- '{$1=$1; print}'; echo '  lead  trail  ' | awk '{print NF, $1; $1=$1; print "[" $0 "]"}'; echo abc | awk '{$0="x y z"; print $2, NF}'; echo 'a,b;c' | awk -F'[,;]' '{print $3}'; printf 'a\tb c\n' | awk -F'\t' '{print $2}'; echo aXXbXc | awk -FX '{print NF}'; echo 'a|b' | awk -F'|' '{print $2}'; echo 1 2 3 | awk '{print $(NF-1), $NF; i=1; print $i++; print i}'; echo 'a b' | awk '{print $1$2; print $1,$2; print $1" "$2}'`},
	{name: "awk records", script: `printf 'a b\nc\n\nd\ne f\n\n\n\ng' | awk 'BEGIN{RS=""}{print NR": "$1"|"$NF"|"NF}'; printf 'a;b;c' | awk 'BEGIN{RS=";"}{print}'; awk 'BEGIN{ORS="|"; OFS="-"}{print $1,$2} END{printf "\n"}' table.txt; awk 'FNR==1{print FILENAME} END{print NR, FNR}' left.txt right.txt; awk '{print v, $1}' v=1 left.txt v=2 right.txt; awk -v x=5 'BEGIN{print x+1}'; awk 'BEGIN{print ARGC, ARGV[1]}' arg; printf '1\n2\n' | awk '{print} END{print $0}'`},
	{name: "awk getline", script: `awk 'BEGIN{while((getline line < "left.txt")>0) print "got " line; close("left.txt"); getline < "left.txt"; print $2; "echo cmd" | getline x; print x; if((getline y < "nope")<0) print "error"}'; awk 'NR==1{getline; print "next:" $0; getline z; print "z:" z, NR}' words.txt; awk '{print > "out_" $3} END{close("out_x"); while((getline l < "out_x")>0) print l}' table.txt; ls out_*; awk 'BEGIN{print "b\na" | "sort"; close("sort"); print "after"; r=system("exit 3"); print r; system("echo sys")}'`},
	{name: "awk regex", script: `awk '$1 ~ /^[ab]$/' table.txt; awk '$3 !~ /x/ {print $1}' table.txt; awk 'BEGIN{if("abc" ~ "b.") print "dyn"; r="^a"; print ("abc" ~ r); print "a/b" ~ /a\/b/; print "a.b" ~ /a\.b/; print "x+y" ~ /x\+y/; print "tab\there" ~ /\t/; print "A" ~ /[[:upper:]]/}'; awk '/fig/,/cherry/' words.txt; awk 'NR==2,NR==3' words.txt; awk '/banana/{f=1} f' words.txt; awk '/a/&&/p/' words.txt; awk '!/a/' words.txt`},
	{name: "awk programs", script: `printf '{ print $1 }\nEND { print "done" }\n' > p.awk; awk -f p.awk table.txt; awk 'BEGIN { # comment
  x = 1; y = 2   # more
  print x,
        y
  if (x)
    print "t"
  else
    print "f"
}'; awk 'BEGIN{printf "a"; print ""; print "x" > "/dev/stderr"}' 2>/dev/null; awk 'BEGIN{print length()}' </dev/null; echo abcd | awk '{print length}'; awk 'BEGIN{print -2^2, 2^3^2, 1-1-1, !1+1, 1 - -1, "a" > "o"}'; cat o; awk 'BEGIN{print (1>2) ? "y" : "n"; x["a"]; print length(x); print 1==1 ? "eq" : "ne"; a = b = 3; print a b; print a++ + ++a, a--; print 5 " " -1}'`},
	{name: "awk csv report", script: `awk -F, 'NR>1{sum[$3]+=$2; n[$3]++} END{for(c in sum) printf "%-6s %5.1f\n", c, sum[c]/n[c]}' people.csv | sort; awk -F'[ =]+' '/^\[/{sec=$0} $1=="port"{print sec, $2}' conf.ini; awk '{c[$2]++} END{for(l in c) print c[l], l | "sort -rn"}' log.txt; awk '{ for (i=NF;i>0;i--) printf "%s%s", $i, (i>1?OFS:ORS) }' table.txt; awk '{w=length($0); if(w>m){m=w;l=$0}} END{print m": "l}' words.txt`},
	{name: "awk errors", script: `awk 'BEGIN{print 1' 2>/dev/null; echo $?; awk '{print}' nope 2>/dev/null; echo $?; awk 'BEGIN{exit}END{print "e"}'; awk 'BEGIN{exit 1}'; echo $?`},
	{name: "diff", script: `diff old.txt new.txt; echo $?; diff old.txt old.txt; echo $?; diff -q old.txt new.txt; diff old.txt nope 2>/dev/null; echo $?; diff -u old.txt new.txt | tail -n +3; diff -U1 old.txt new.txt | tail -n +3; diff -c old.txt new.txt | tail -n +3; diff empty.txt left.txt; diff left.txt empty.txt; diff noeol.txt words.txt; diff -s left.txt left.txt`},
	{name: "diff options", script: `printf 'A b\n' > x; printf 'a  b\n' > y; diff -i x y; echo $?; diff -iw x y; echo $?; diff -b y x; echo $?; mkdir p q; echo 1 > p/f; echo 2 > q/f; echo 3 > p/only; diff -r p q; echo $?; diff p q; diff -rN p q | tail -n 2; echo x | diff - x; diff -u --label a --label b x y; printf 'a\n\nb\n' > m; printf 'a\nb\n' > n; diff -B m n; echo $?`},
	{name: "diff shifts", script: `printf 'a\nb\nb\nc\n' > x; printf 'a\nb\nc\n' > y; diff x y; diff y x; printf 'f() {\n}\n\ng() {\n}\n' > p; printf 'f() {\n}\n\nh() {\n}\n\ng() {\n}\n' > q; diff p q; diff -u p q | tail -n +3; seq 20 > s; seq 1 2 20 > t; diff s t; seq 30 | sed '5d;25s/$/x/' > u; seq 30 | diff -u - u | tail -n +3`},
	{name: "cmp", script: `cmp words.txt words.txt; echo $?; cmp left.txt right.txt; echo $?; cmp -s left.txt right.txt; echo $?; head -c 5 words.txt > s; cmp s words.txt 2>/dev/null; echo $?; cmp -l left.txt right.txt | head -n 2; cmp nope left.txt 2>/dev/null; echo $?`},
	{name: "tar", script: `tar cf a.tar d words.txt; tar tf a.tar | sort; mkdir out; tar xf a.tar -C out; find out | sort; cmp words.txt out/words.txt; tar czf a.tgz d; tar tzf a.tgz | sort; tar xzf a.tgz -O d/two.h; tar cf - -C d one.c | tar tf -; mkdir o2; tar xf a.tar -C o2 --strip-components=1; find o2 | sort; tar xf nope 2>/dev/null; echo $?; tar cf b.tar --exclude='*.txt' d; tar tf b.tar | sort; tar xf a.tar -C o2 words.txt; ls o2; tar rf b.tar nums.txt; tar tf b.tar | tail -n1`},
	{name: "gzip", script: `cp words.txt w; gzip w; ls w*; zcat w.gz; gunzip w.gz; ls w; gzip -c w | gzip -d; gzip -k w; ls w w.gz; echo data | gzip | zcat; gzip -t w.gz; echo $?; echo junk > j.gz; gzip -t j.gz 2>/dev/null; echo $?; gzip -9f w; gzip -dc w.gz | wc -c`},
	{name: "base64", script: `echo hello | base64; echo hello | base64 | base64 -d; seq 30 | base64; seq 30 | base64 -w 0; echo; echo 'aGk=' | base64 --decode; echo; echo '!!' | base64 -d 2>/dev/null; echo $?; printf '' | base64; echo abc | base32; echo MFRGGCQ= | base32 -d`},
	{name: "checksums", script: `md5sum words.txt; sha1sum words.txt; sha256sum words.txt nums.txt; sha512sum < words.txt; sha224sum words.txt; sha384sum words.txt; cksum words.txt; sha256sum words.txt > s; sha256sum -c s; echo x >> words.txt; sha256sum -c s 2>/dev/null; echo $?; cksum < nums.txt`},
	{name: "od", script: `printf 'hello\n\0\377' | od; printf 'hello\n' | od -c; printf 'hello\n' | od -An -tx1; printf 'ABCD' | od -An -td1; seq 20 | od -tx1z | head -n 2; printf 'abcdefgh' | od -An -tx4; printf 'ab' | od -x; head -c 64 /dev/zero | od; printf 'abc' | od -An -to1 -v; printf 'abcdef' | od -j2 -N2 -c; printf 'a b\t' | od -An -a; printf 'xyz' | od -b; printf 'abcd' | od -Ax -tu2`},
	{name: "date", script: `export TZ=UTC; date -d @0; date -u -d @1700000000 '+%Y-%m-%d %H:%M:%S %j %a %A %b %B %d %e %I %p %y %u %w %Z %z %s %D %F %T %R %%'; date -d '2024-02-28 + 2 days' +%F 2>/dev/null || :; date -d '2024-02-28 2 days' +%F; date -d '2024-03-31 1 month ago' +%F; date -d '2020-01-01T10:20:30Z' +%T; date -d '2020-01-01 12:00' +%s; date -d 'Jan 5 2021' +%F; date -d nonsense 2>/dev/null; echo $?; date -d @0 -Iseconds; date -d @0 -I; date -d @0 -R; date -d '2021-12-31' +%U-%W-%V-%G; date -d @5 +%-S.%N; date -d '2024-01-15 yesterday' +%F; date -d '10 days ago 2024-01-15' +%F 2>/dev/null | head -c0; date -d '2024-01-15 next week' +%F; date -d 2024-07-04 +'%-d %b %Y, %_H'`},
	{name: "expr", script: `expr 1 + 2; expr 7 / 2; expr 7 % 2; expr 3 \* 4; expr 5 - 9; expr 1 = 1; expr a = b; echo $?; expr 3 \< 5; expr abc : 'a\(.\)c'; expr abc : 'ab'; expr length hello; expr substr hello 2 3; expr index hello l; expr 0; echo $?; expr '' \| x; expr 1 \& 0; expr \( 1 + 2 \) \* 3; expr 1 / 0 2>/dev/null; echo $?; expr a + 1 2>/dev/null; echo $?; expr 99999999999 \* 99999999999`},
	{name: "id and friends", script: `id -u | grep -c '^[0-9]*$'; hostname >/dev/null && echo ok; uname >/dev/null && echo ok; nproc | grep -c '^[0-9]'; tty >/dev/null; echo $?; true; echo $?; false; echo $?; sleep 0; echo $?; printenv HOME >/dev/null; echo $?; printenv NOPE; echo $?; env A=b printenv A; which sh >/dev/null; echo $?; which nope-x; echo $?`},
	{name: "timeout", script: `timeout 60 echo ok; timeout 0.05 sleep 60; echo $?; timeout 60 sh -c 'exit 7'; echo $?; timeout --preserve-status 0.05 sleep 60; echo $?; timeout -s KILL 0.05 sleep 60; echo $?; timeout 2>/dev/null; echo $?`},
	{name: "mktemp", script: `f=$(mktemp); test -f "$f" && echo file; d=$(mktemp -d); test -d "$d" && echo dir; g=$(mktemp ./t.XXXX); echo ${#g}; stat -c %a $g; mktemp bad 2>/dev/null; echo $?; mktemp -u x.XXXXXX | wc -c; h=$(mktemp --suffix=.txt t.XXXXXX); echo ${h##*.}`},
	{name: "yes and shuf", script: `yes | head -n 2; yes a b | head -n 1; seq 10 | shuf | sort -n | paste -sd,; shuf -e a a; shuf -i 1-3 | sort | paste -sd,; seq 5 | shuf -n 2 | wc -l`},
	{name: "column and strings", script: `printf 'a bb ccc\ndddd e f\n' | column -t; printf 'x:yy\nzzz:w\n' | column -t -s:; printf 'abc\0\1defgh\0ij' | strings; printf 'abc\0defgh\0' | strings -n 3`},
	{name: "dd", script: `dd if=words.txt bs=5 count=2 2>/dev/null; echo; dd if=words.txt of=o bs=1 skip=2 count=3 2>/dev/null; cat o; echo; printf abcdef > e; printf XY | dd of=e bs=1 seek=2 conv=notrunc 2>/dev/null; cat e; echo; dd if=/dev/zero bs=1k count=3 2>/dev/null | wc -c; dd if=nope 2>/dev/null; echo $?`},
	{name: "devices", script: `cat /dev/null; echo x > /dev/null; head -c 3 /dev/zero | od -An -tx1; echo a | cat /dev/stdin; echo b > /dev/stdout; echo c | tee /dev/stderr 2>/dev/null; (echo full > /dev/full) 2>/dev/null; echo $?; head -c 8 /dev/urandom | wc -c; test -c /dev/null && echo char; echo d | sed p /dev/fd/0`},
	{name: "env and nohup", script: `env FOO=bar sh -c 'echo $FOO'; env -u HOME sh -c 'echo ${HOME-none}' | head -c0; env -i sh -c 'echo ${FOO-unset}'; env nope-x 2>/dev/null; echo $?; nice echo n; FOO=1 env | grep ^FOO; env -i A=1 B=2 env | sort`},

	// Scripts as people write them.
	{name: "word frequency", script: `tr -cs 'A-Za-z' '\n' < poem.txt | tr A-Z a-z | sort | uniq -c | sort -rn | head -n 3`},
	{name: "loop over files", script: `for f in *.txt; do n=$(wc -l < "$f"); echo "$f $n"; done | sort -k2,2nr -k1,1 | head -n 3`},
	{name: "parse configuration", script: `while IFS='=' read -r k v; do case $k in \#*|\[*|'') continue;; esac; k=$(echo $k); echo "$k->${v# }"; done < conf.ini`},
	{name: "rename files", script: `mkdir t; cd t; touch a.jpeg b.jpeg; for f in *.jpeg; do mv "$f" "${f%.jpeg}.jpg"; done; ls`},
	{name: "options of a script", script: `usage() { echo "usage: $0" >&2; exit 2; }; verbose=0; while [ $# -gt 0 ]; do case $1 in -v) verbose=1;; -n) shift; n=$1;; --) shift; break;; -*) usage;; *) break;; esac; shift; done; echo $verbose ${n:-none} $*`},
	{name: "log levels", script: `for l in ERROR WARN INFO; do printf '%s: %d\n' $l $(grep -c " $l " log.txt); done; cut -d' ' -f1 log.txt | sort | uniq -c | awk '{print $2"="$1}'; grep ERROR log.txt | sed 's/^[^ ]* ERROR //' | paste -sd';'`},
	{name: "prime numbers", script: `i=2; while [ $i -le 30 ]; do j=2; p=1; while [ $((j*j)) -le $i ]; do if [ $((i%j)) -eq 0 ]; then p=0; break; fi; j=$((j+1)); done; [ $p -eq 1 ] && printf '%d ' $i; i=$((i+1)); done; echo`},
	{name: "csv sum", script: `total=0; { read header; while IFS=, read -r name age city; do total=$((total+age)); done; echo $total; } < people.csv; tail -n +2 people.csv | cut -d, -f2 | paste -sd+ | sed 's/.*/$((&))/' > e; eval echo $(cat e)`},
	{name: "lock directory", script: `lock() { mkdir l 2>/dev/null; }; lock && echo got; lock || echo busy; rmdir l; lock && echo again; trap 'rmdir l; echo cleaned' EXIT`},
	{name: "safe temporary file", script: `t=$(mktemp) || exit; trap 'rm -f "$t"' EXIT; sort words.txt > "$t"; uniq "$t" | wc -l; (test -f "$t" && echo there)`},
	{name: "fibonacci", script: `a=0 b=1 i=0; while [ $i -lt 15 ]; do printf '%d ' $a; t=$((a+b)); a=$b; b=$t; i=$((i+1)); done; echo`},
	{name: "reverse a string", script: `s=hello; r=; while [ -n "$s" ]; do c=${s%"${s#?}"}; r=$c$r; s=${s#?}; done; echo $r`},
	{name: "tree of sizes", script: `find . -type f -name '*.txt' -exec wc -c {} + | sort -n | tail -n 3 | sed 's/^ *//'`},
	{name: "heredoc script", script: `cat > gen.sh <<'EOF2'
#!/bin/sh
set -eu
name=${1:-world}
cat <<END
Hello, $name!
END
EOF2
sh gen.sh; sh gen.sh you; chmod +x gen.sh; ./gen.sh me`},
	{name: "parallel jobs with results", script: `for i in 3 1 2; do (sleep 0.0$i; echo $((i*i)) > r$i) & done; wait; cat r1 r2 r3`},
	{name: "pipe status with a file", script: `{ { false; echo $? > st; } | cat; } ; cat st`},
	{name: "menu with case", script: `for c in start stop restart bogus; do case "$c" in start) echo Starting;; stop|halt) echo Stopping;; re*) echo Re;; *) echo "Unknown: $c" ;; esac; done`},
	{name: "here string of numbers", script: `set -- $(seq 5); s=0; for n; do s=$((s+n)); done; echo "sum=$s avg=$((s/$#))"`},
}

var bashCases = []shellCase{
	{name: "arrays", script: `a=(x "y z" w); echo ${a[0]} "${a[1]}" ${#a[@]} "${a[@]}" ${a[-1]}; a+=(v); a[6]=s; echo ${!a[@]}; unset 'a[0]'; echo ${#a[@]} "${a[@]:1:2}"; for x in "${a[@]}"; do echo "<$x>"; done; b=("${a[@]/y/Y}"); echo "${b[@]}"; e=(); echo ${#e[@]} "${e[@]}"; c=([2]=two [5]=five); echo "${!c[@]}"`},
	{name: "maps", script: `declare -A m; m[one]=1; m[two]=2; m["a b"]=3; echo ${m[one]} ${#m[@]} "${m["a b"]}"; for k in "${!m[@]}"; do echo "$k=${m[$k]}"; done | sort; unset 'm[one]'; echo ${m[one]-gone}; declare -A n=([x]=1 [y]=2); echo ${n[y]}; [[ -v n[x] ]] && echo has`},
	{name: "double brackets", script: `x=abc; [[ $x == a* ]] && echo 1; [[ $x == "a*" ]] || echo 2; [[ $x =~ ^a(.)c$ ]] && echo "${BASH_REMATCH[1]}"; [[ -n $x && ! -z $x ]] && echo 3; [[ a < b ]] && echo 4; [[ 10 -gt 9 ]] && echo 5; [[ -f nope || -d d ]] && echo 6; y='a b'; [[ $y == 'a b' ]] && echo 7; [[ $x != *z* ]] && echo 8; [[ 5 =~ ^[0-9]+$ ]] && echo 9; [[ (1 -eq 1) && 2 -lt 3 ]]; echo $?`},
	{name: "arithmetic commands", script: `((x=5)); echo $x; ((x++)); ((x+=3)); echo $x; ((x>5)) && echo big; for ((i=0;i<3;i++)); do echo -n "$i "; done; echo; let y=x*2 z=3; echo $y $z; echo $((2**10)) $((16#ff)) $((x++ + ++x)) $x; ((0)) || echo zero; a=(1 2 3); ((a[1]+=10)); echo ${a[1]}; echo $((a[0]+a[1]))`},
	{name: "braces", script: `echo {a,b,c} {1..5} {a..e} x{1,2}y {3..1} {01..03} {1..10..3} {a,b}{1,2} "{a,b}" {a} {,x} pre{{1,2},3}`},
	{name: "replacements", script: `s='hello world'; echo "${s/o/0}" "${s//o/0}" "${s/#hello/bye}" "${s/%world/all}" "${s//l}" "${s:0:5}" "${s:6}" "${s: -5}" "${s:1:-1}" "${s^}" "${s^^}" "${s^^[aeiou]}"; t=ABC; echo "${t,}" "${t,,}"; p=/a/b/c.txt; echo "${p//\//-}"; x='a*b'; echo "${x//\*/+}"`},
	{name: "here strings", script: `cat <<< "one line"; read a b <<< "x y z"; echo "$b"; tr a-z A-Z <<< $'tab\there'; wc -c <<< ""`},
	{name: "dollar quotes", script: `echo $'a\tb\nc' $'\x41\u00e9' $'it\'s'; x=$'1\n2'; echo "$x"`},
	{name: "process substitution", script: `diff <(printf 'a\nb\n') <(printf 'a\nc\n'); cat <(echo one) <(echo two); while read x; do echo "got $x"; done < <(seq 2); echo data | tee >(cat >/dev/null) | cat; paste <(seq 2) <(seq 3 4)`},
	{name: "pipefail and PIPESTATUS", script: `false | true; echo $? ${PIPESTATUS[0]}; set -o pipefail; false | true; echo $?; true | true; echo $?; (exit 3) | (exit 4) | true; echo $? "${PIPESTATUS[*]}"`},
	{name: "combined output", script: `{ echo o; echo e >&2; } &> f; sort f; echo more &>> f; wc -l < f; { echo o; echo e >&2; } |& sort; echo x >& g; cat g`},
	{name: "functions and local", script: `function f { local x=1; declare y=2; echo $x$y; }; f; echo "[$x$y]"; g() { local -i n=3+4; echo $n; local a=(1 2); echo ${#a[@]}; }; g; h() { echo "${FUNCNAME[0]}" "$#"; }; h a b`},
	{name: "declare", script: `declare -i n=5; n+=3; echo $n; n=2*4; echo $n; declare -r r=1; (r=2) 2>/dev/null || echo ro; declare -x E=exp; env | grep ^E=; declare -u U=abc; echo $U; declare -l L=ABC; echo $L; x=1; declare -p x; declare -n ref=x; ref=9; echo $x; arr=(1 2); declare -p arr`},
	{name: "read options", script: `read -r a b c <<< "1 2 3 4"; echo "$c"; read -a arr <<< "x y z"; echo ${arr[1]} ${#arr[@]}; read -d : v <<< "ab:cd"; echo $v; read -n 3 w <<< abcdef; echo $w; printf 'l1\nl2\n' | { mapfile -t m; echo ${#m[@]} ${m[1]}; }; IFS=, read -ra p <<< "a,b,c"; echo ${p[2]}; exec 3<<< "fd three"; read -u 3 q; echo $q; read -t 0.01 z < <(sleep 1); echo $? | grep -c -v '^0$'`},
	{name: "printf more", script: `printf -v v '%03d' 7; echo $v; printf '%q\n' 'a b' "it's"; printf '%s\n' "${arr[@]}" | wc -l; printf '%-10s|%5.1f\n' name 3.14159; printf '%(%Y)T\n' 0 2>/dev/null | head -c0; printf '%s,' {1..3}; echo`},
	{name: "select and case fallthrough", script: `case a in a) echo 1;& b) echo 2;; c) echo 3;; esac; case ab in a*) echo x;;& *b) echo y;; esac; select x in one two; do echo "$x"; break; done <<< 2 2>/dev/null`},
	{name: "extglob", script: `shopt -s extglob
x=foobar; echo ${x%%+(o)bar} ${x##@(foo|bar)}; case file.txt in *.@(txt|md)) echo doc;; esac; [[ aaa == +(a) ]] && echo plus; [[ abc == !(x*) ]] && echo not; ls !(*.txt|d)`},
	{name: "nullglob and dotglob", script: `shopt -s nullglob; echo nope*; shopt -u nullglob; shopt -s dotglob; echo d/sub/*; shopt -s globstar; echo d/**/*.txt`},
	{name: "traps", script: `trap 'echo err $?' ERR; false; true; trap - ERR; f() { trap 'echo ret' RETURN 2>/dev/null; }; trap 'echo exit' EXIT`},
	{name: "indirection", script: `a=b; b=c; echo ${!a}; x_1=p; x_2=q; echo ${!x_*}; arr=(1 2 3); ref='arr[1]'; echo ${!ref}`},
	{name: "wait -n and jobs", script: `(exit 3) & wait -n; echo $?; sleep 5 & jobs -p | wc -l; kill %1; wait %1 2>/dev/null; echo $?`},
	{name: "string tests", script: `x="Hello World"; [[ ${x,,} == *world* ]] && echo found; [[ -z ${unset_var:-} ]] && echo empty; if [[ "$x" =~ ([A-Z])[a-z]+\ ([A-Z]) ]]; then echo "${BASH_REMATCH[1]}${BASH_REMATCH[2]}"; fi; echo ${#x} ${x:(-5):3}`},
	{name: "stack functions", script: `stack=(); push() { stack+=("$1"); }; pop() { echo "${stack[-1]}"; unset 'stack[-1]'; }; push a; push b; push c; pop; pop; echo ${#stack[@]}`},
	{name: "echo -e", script: `echo -e 'a\tb\nc'; echo -en 'x\n'; echo -E 'a\tb'; echo 'a\tb'; echo -e 'stop\chere'; echo; echo -n -e 'y\n'; echo -- x; echo -x`},
	{name: "fizzbuzz", script: `for i in {1..15}; do o=; ((i%3)) || o=Fizz; ((i%5)) || o+=Buzz; echo "${o:-$i}"; done | paste -sd' '`},
	{name: "sieve", script: `n=50; for ((i=2;i<=n;i++)); do s[i]=1; done; for ((i=2;i*i<=n;i++)); do ((s[i])) && for ((j=i*i;j<=n;j+=i)); do s[j]=0; done; done; for ((i=2;i<=n;i++)); do ((s[i])) && printf '%d ' $i; done; echo`},
}
