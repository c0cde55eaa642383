package shell

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// A script cannot read or change anything of the host.
func TestNothingOfTheHostIsReachable(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const secret = "Zk3-secret-of-the-host"
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("echo "+secret+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOST_SECRET", secret)
	t.Setenv("TMPDIR", dir)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Chdir(dir)
	host := filepath.ToSlash(dir)
	for _, script := range []string{
		`cat H/secret`, `cat < H/secret`, `. H/secret`, `source H/secret`, `H/secret`, `sh H/secret`, `exec H/secret`, `secret`, `./secret`, `command secret`,
		`echo H/*`, `ls H`, `ls -la H/`, `find H`, `find / -name secret`, `test -e H/secret && echo "found $0"`, `[ -d H ] && echo secret-dir`,
		`[[ -f H/secret ]] && echo secret-file`, `command -v H/secret`, `type H/secret`, `type -p secret`, `type -P secret`, `which secret`, `hash secret; echo $?`,
		`cd H && cat secret`, `cd H; cat secret; pwd -P`, `pushd H; cat secret`, `CDPATH=H; cd .; cat secret`, `cat $PWD/secret`, `cat ./secret`, `cat ../../../../../../../../..H/secret`,
		`ln -s H/secret l; cat l`, `ln H/secret l; cat l`, `ln -s / r; cat rH/secret`, `ln -s ../../../../../..H d; cat d/secret; ls d/`,
		`cp H/secret x; cat x`, `cp -r H x; cat x/secret`, `mv H/secret x`, `tar cf - H | tar tf -`, `tar cf - -C H secret | cat`,
		`echo $HOST_SECRET`, `env`, `printenv HOST_SECRET`, `export -p`, `set`, `declare -p`, `echo ${!H*}`, `sh -c 'env'`, `env -i sh -c env`, `awk 'BEGIN{for(k in ENVIRON) print k, ENVIRON[k]}'`, `jq -n env`, `jq -n '$ENV'`,
		`cat /proc/self/environ /proc/1/environ`, `cat /proc/$$/cwd/secret /proc/self/root/H/secret`, `ls /proc/*/cwd/`, `cat /dev/fd/3 /dev/fd/9`, `for i in 3 4 5 6 7 8 9 10 11 12; do cat <&$i; done`,
		`awk 'BEGIN{while((getline l < "H/secret")>0) print l}'`, `awk '{print}' H/secret`, `awk 'BEGIN{system("H/secret")}'`, `awk 'BEGIN{"H/secret" | getline x; print x}'`, `awk -f H/secret`,
		`sed -n 'r H/secret' /etc/passwd`, `echo x | sed 'r H/secret'`, `echo x | sed 'R H/secret'`, `sed -f H/secret /etc/passwd`, `sed -i s/x/y/ H/secret`, `echo x | sed 's/x/H\/secret/e'`, `sed e /etc/passwd`,
		`grep -r secret H`, `grep -f H/secret /etc/passwd`, `jq -n --slurpfile x H/secret '$x'`, `jq -n --rawfile x H/secret '$x'`, `jq -n 'import "H/secret" as $x; $x'`, `jq -n 'input_filename'`, `jq -f H/secret -n`,
		`xargs -a H/secret echo`, `echo H/secret | xargs cat`, `find / -exec cat H/secret \;`, `diff H/secret /etc/passwd`, `sort H/secret`, `dd if=H/secret`, `base64 H/secret`, `gzip -c H/secret | zcat`, `date -r H/secret +secret`, `stat H/secret`, `wc H/secret`,
		`touch -r H/secret x && date -r x`, `readlink -f H/secret && cat $(readlink -f H/secret)`, `mapfile x < H/secret; echo "${x[@]}"`, `read x < H/secret; echo $x`, `echo $(<H/secret)`, `cat <(cat H/secret)`, `eval "$(cat H/secret)"`,
		`exec 3< H/secret; cat <&3`, `exec 3<>H/new; echo x >&3`, `trap '. H/secret' EXIT`, `PATH=H; secret`, `PATH=H:$PATH secret`, `BASH_ENV=H/secret ENV=H/secret sh -c :`, `HOME=H; cat ~/secret; cd; cat secret`, `cat ~root/secret`,
		`echo x > H/new`, `echo x >> H/secret`, `: > H/new`, `touch H/new`, `mkdir H/new`, `mkdir -p H/new/x`, `cp /etc/passwd H/new`, `mv /etc/passwd H/new`, `ln -s x H/new`, `ln /etc/passwd H/new`, `tee H/new < /etc/passwd`, `rm -rf H`, `rm -f H/secret`,
		`chmod 000 H/secret`, `truncate -s 0 H/secret`, `dd of=H/new if=/etc/passwd`, `mktemp -p H`, `TMPDIR=H mktemp`, `sort -o H/new /etc/passwd`, `split -l1 /etc/passwd H/new`, `awk 'BEGIN{print "x" > "H/new"}'`, `echo x | sed 'w H/new'`, `tar xf /dev/null -C H`,
		`install -D /etc/passwd H/new/x`, `gzip -c /etc/passwd > H/new`, `sh -c 'echo x > H/new'`, `(cd / && echo x > ./H/new)`, `cat > H/sh-interp-1 < /etc/passwd`, `cat <(echo x) > H/new`, `cd H && echo x > new`,
		`mkfifo H/new`, `exec > H/new; echo x`, `sh-interp-1`, `python3 -c 'print(1)'`, `/bin/bash -c 'cat H/secret'`, `/usr/bin/env cat H/secret`, `busybox cat H/secret`, `nc -l 1`, `curl file://H/secret`, `exec 3<>/dev/tcp/127.0.0.1/22; cat <&3`, `echo x > /dev/udp/127.0.0.1/9`,
		`ulimit -a`, `hostname; uname -a; id; whoami; cat /etc/hostname`, `kill -9 1`, `kill -9 ` + strconv.Itoa(os.Getpid()), `kill -9 -1`, `echo $PPID $$`, `ps; jobs`,
	} {
		t.Run(script, func(t *testing.T) {
			// H is the host's directory; HOST is replaced separately.
			text := strings.ReplaceAll(script, "H/", host+"/")
			text = strings.NewReplacer(" H ", " "+host+" ", "=H;", "="+host+";", "=H:", "="+host+":", "=H ", "="+host+" ", "..H", ".."+host, "rH/", "r"+host+"/").Replace(text)
			if rest, ok := strings.CutSuffix(text, " H"); ok {
				text = rest + " " + host
			}
			text = strings.ReplaceAll(text, " H;", " "+host+";")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var out bytes.Buffer
			f := newFS(t)
			_, err := Run(ctx, Config{FS: f, Dir: "/w", Script: text, Stdin: strings.NewReader("input\n"), Stdout: &out, Stderr: &out})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), secret) {
				t.Errorf("the host's secret came out:\n%s", &out)
			}
			if name, _ := os.Hostname(); len(name) > 3 && name != "sandbox" && strings.Contains(out.String(), name) {
				t.Errorf("the host's name came out:\n%s", &out)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != "secret" {
				t.Fatalf("the host's directory changed: %v, %v", entries, err)
			}
			data, err := os.ReadFile(filepath.Join(dir, "secret"))
			if err != nil || string(data) != "echo "+secret+"\n" {
				t.Fatalf("the host's file changed: %q, %v", data, err)
			}
		})
	}
}

// The package does not depend on packages that can start programs or open connections.
func TestThePackageCannotStartProgramsOrOpenConnections(t *testing.T) {
	testenv.Need(t, testenv.GoTool)
	deps := dependencies(t)
	for _, forbidden := range []string{"os/exec", "net", "net/http", "plugin", "golang.org/x/sys/unix", "mvdan.cc/sh/v3/interp", "mvdan.cc/sh/v3/expand"} {
		if deps[forbidden] {
			t.Errorf("it depends on %s", forbidden)
		}
	}
	if !deps["mvdan.cc/sh/v3/syntax"] {
		t.Error("the list of dependencies is not what it should be: the parser is not in it")
	}
}
