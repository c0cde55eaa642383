package wasm

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbar-dev/sandbar"
	"github.com/sandbar-dev/sandbar/driver"
)

// bait is a part of the host that programs try to reach.
type bait struct {
	secret   string // stands in a file, in a directory's name, and in the daemon's environment
	dir      string
	port     int
	visitors atomic.Int32
}

func newBait(t *testing.T) *bait {
	t.Helper()
	b := &bait{secret: "bait-" + string(sandbar.NewID()), dir: t.TempDir()}
	t.Setenv("SANDBAR_TEST_BAIT", b.secret)
	if err := os.WriteFile(filepath.Join(b.dir, "file"), []byte(b.secret), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, b.secret), 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b.port = l.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.visitors.Add(1)
			c.Write([]byte(b.secret))
			c.Close()
		}
	}()
	return b
}

// untouched fails the test if the bait was changed or contacted.
func (b *bait) untouched(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "file"))
	if err != nil || string(text) != b.secret {
		t.Errorf("the host's file is now %q, %v", text, err)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the host's directory has %v, %v", entries, err)
	}
	if n := b.visitors.Load(); n != 0 {
		t.Errorf("the host's port had %d visitors", n)
	}
}

// attempts are programs that try to reach the host. DIR is the bait's directory, PORT its port, PID
// the daemon's process. Each prints "end" after its last attempt, so that an early exit is
// detected.
var attempts = map[string]struct {
	command []string
	program string
}{
	"python": {[]string{"python3", "-c"}, `
import os, sys
def attempt(f):
    try: print("got", f())
    except BaseException as e: print("no", type(e).__name__)
D="DIR"
attempt(lambda: open(D+"/file").read())
attempt(lambda: os.listdir(D))
attempt(lambda: open(D+"/file","w").write("changed"))
attempt(lambda: open("/"+"../"*40+D.lstrip("/")+"/file").read())
for i,target in enumerate([D, D+"/file", "/"+"../"*30+D.lstrip("/"), "/proc/self/root"+D, "/proc/PID/root"+D, "/proc/1/cwd"]):
    def link(i=i,target=target):
        os.symlink(target, f"l{i}"); return open(f"l{i}/file").read() if i!=1 else open(f"l{i}").read()
    attempt(link); attempt(lambda i=i: os.listdir(f"l{i}")); attempt(lambda i=i: open(f"l{i}/new","w").write("x"))
attempt(lambda: os.mkdir("d") or os.symlink("../../../.."+D, "d/up") or os.listdir("d/up"))
attempt(lambda: os.rename(D+"/file","stolen")); attempt(lambda: os.link(D+"/file","linked")); attempt(lambda: os.remove(D+"/file")); attempt(lambda: os.chmod(D+"/file",0))
attempt(lambda: dict(os.environ)); attempt(lambda: open("/proc/PID/environ").read()); attempt(lambda: open("/proc/self/environ").read())
attempt(lambda: os.listdir("/proc")); attempt(lambda: open("/proc/self/maps").read()); attempt(lambda: os.kill(PID, 9)); attempt(lambda: os.kill(PID, 0))
attempt(lambda: [os.fdopen(n,"rb",closefd=False).read(1) for n in range(3,20)]); attempt(lambda: [os.read(n,1) for n in range(3,50)])
def connect():
    import socket; return socket.create_connection(("127.0.0.1",PORT),timeout=1).recv(100)
attempt(connect)
def raw():
    import _socket; return _socket.socket(2,1,0)
attempt(raw)
def url():
    import urllib.request; return urllib.request.urlopen("http://127.0.0.1:PORT").read()
attempt(url)
def ct():
    import ctypes; return ctypes.CDLL(None)
attempt(ct)
attempt(lambda: __import__("subprocess").run(["/bin/bash","-c","cat DIR/file; ls DIR; echo x > DIR/new; env; cat /proc/*/environ; exec 3<>/dev/tcp/127.0.0.1/PORT"],capture_output=True))
attempt(lambda: os.open("/dev/sandbar",2)); attempt(lambda: os.write(os.open("/dev/sandbar",2), b"S"+b"\xff"*100)); attempt(lambda: open("/dev/mem","rb").read(10)); attempt(lambda: open("/dev/tty").read())
print("end")`},
	"javascript": {[]string{"node", "-e"}, `
const fs=require('fs'), cp=require('child_process'), D='DIR';
const attempt=f=>{ try{ console.log('got', f()) }catch(e){ console.log('no', e.code||e.name) } };
attempt(()=>fs.readFileSync(D+'/file','utf8')); attempt(()=>fs.readdirSync(D)); attempt(()=>fs.writeFileSync(D+'/file','changed')); attempt(()=>fs.readFileSync('/'+'../'.repeat(40)+D.slice(1)+'/file','utf8'));
[D, D+'/file', '/'+'../'.repeat(30)+D.slice(1), '/proc/self/root'+D, '/proc/PID/root'+D, '/proc/1/cwd'].forEach((t,i)=>{ attempt(()=>fs.symlinkSync(t,'l'+i)); attempt(()=>fs.readFileSync('l'+i+(i===1?'':'/file'),'utf8')); attempt(()=>fs.readdirSync('l'+i)); attempt(()=>fs.writeFileSync('l'+i+'/new','x')) });
attempt(()=>fs.renameSync(D+'/file','stolen')); attempt(()=>fs.linkSync(D+'/file','linked')); attempt(()=>fs.unlinkSync(D+'/file')); attempt(()=>fs.chmodSync(D+'/file',0)); attempt(()=>fs.realpathSync(D)); attempt(()=>fs.openSync(D+'/file',2));
attempt(()=>process.env); attempt(()=>fs.readFileSync('/proc/PID/environ','utf8')); attempt(()=>fs.readdirSync('/proc')); attempt(()=>process.kill(PID,9)); attempt(()=>process.binding('fs'));
for(let i=3;i<30;i++){ attempt(()=>fs.readSync(i,Buffer.alloc(10))); attempt(()=>fs.writeSync(i,'x')) }
attempt(()=>require('net').connect(PORT)); attempt(()=>require('http').get('http://127.0.0.1:PORT')); attempt(()=>require('dgram').createSocket('udp4')); attempt(()=>new WebSocket('ws://127.0.0.1:PORT'));
attempt(()=>cp.execSync('cat DIR/file; ls DIR; echo x > DIR/new; env; cat /proc/*/environ').toString()); attempt(()=>cp.spawnSync(process.execPath,['-e','console.log(require("fs").readFileSync("DIR/file","utf8"))']).stdout.toString()); attempt(()=>cp.fork('x'));
attempt(()=>Function('return this')().host); attempt(()=>globalThis.host('stat','/',0)); attempt(()=>import('file://'+D+'/file').catch(()=>{})); attempt(()=>require(D+'/file')); attempt(()=>fs.readFileSync('/dev/mem')); attempt(()=>new WebAssembly.Module(new Uint8Array())); attempt(()=>require('worker_threads').Worker);
fetch('http://127.0.0.1:PORT').then(r=>r.text()).then(console.log,e=>console.log('no',e.name)).then(()=>console.log('end'));`},
	"shell": {[]string{"sh", "-c"}, `
D=DIR; cat $D/file; ls $D; echo changed > $D/file; echo x > $D/new; cat ../../../../../../../../..$D/file; cat /proc/PID/environ /proc/self/environ /proc/1/cmdline; ls /proc; env; set
i=0; for t in $D $D/file /../../../..$D /proc/self/root$D /proc/PID/root$D /proc/1/cwd; do ln -s $t l$i; cat l$i l$i/file; ls l$i/; echo x > l$i/new; cp l$i/file got$i; i=$((i+1)); done
mv $D/file stolen; ln $D/file linked; rm -rf $D; chmod 000 $D/file; touch $D/t; mkdir $D/m; find / -name file; find $D; grep -r bait- / 2>/dev/null; tar cf - $D | wc -c; cp -r $D copy; dd if=$D/file; readlink -f $D/file
kill -9 PID; (kill -TERM -1); (exec 3<>/dev/tcp/127.0.0.1/PORT; cat <&3); (echo > /dev/tcp/127.0.0.1/PORT); cat < /dev/udp/127.0.0.1/PORT; echo ~root ~nobody; cd ~root && pwd
(. $D/file); (source $D/file); cat <(cat $D/file); awk 'BEGIN{while((getline l < "'$D'/file")>0) print l; system("cat '$D'/file"); "cat '$D'/file" | getline x; print x; print "y" > "'$D'/new"}'; awk 'BEGIN{print ENVIRON["SANDBAR_TEST_BAIT"]}'
sed -n "w $D/new" /etc/passwd; sed "r $D/file" /etc/hostname; sort -o $D/new /etc/passwd; jq -n 'env, $ENV, input_filename, ("'$D'/file"|tostring)'; jq -n --rawfile f $D/file '$f'; xargs -a $D/file echo; find / -exec cat $D/file \; ; tee $D/new < /etc/hostname; split $D/file; gzip -c $D/file; base64 $D/file; od $D/file; diff $D/file /etc/passwd; xargs cat <<< $D/file; env -i sh -c "cat $D/file"; nohup cat $D/file; command cat $D/file; eval cat $D/file
cat /dev/mem /dev/kmsg /dev/fd/9 /dev/stdin < /dev/null; sudo cat $D/file; su -c id; chroot / cat $D/file; mount; unshare -r id; hostname; uname -a; id
/usr/bin/python3 -c 'print(open("DIR/file").read())'; /usr/bin/env node -e 'console.log(require("fs").readFileSync("DIR/file"))'; /lib64/ld-linux-x86-64.so.2 /bin/cat $D/file
echo end`},
}

// Programs of no language reach a file, socket, process or variable of the host.
func TestEscapes(t *testing.T) {
	for name, a := range attempts {
		t.Run(name, func(t *testing.T) {
			b := newBait(t)
			box := newBox(t, nil)
			program := strings.NewReplacer("DIR", b.dir, "PORT", fmt.Sprint(b.port), "PID", fmt.Sprint(os.Getpid())).Replace(a.program)
			r := run(t, box, "", sandbar.Cmd{Args: append(a.command[:len(a.command):len(a.command)], program)})
			if !strings.HasSuffix(r.Stdout, "end\n") {
				t.Errorf("the program broke off: %+v\n%s\n%s", r.result, r.Stdout, r.stderr)
			}
			if all := r.Stdout + r.stderr; strings.Contains(all, b.secret) {
				t.Errorf("the host was reached:\n%s", all)
			}
			b.untouched(t)
			if r := run(t, box, "", sandbar.Cmd{Args: []string{"sh", "-c", "echo alive"}}); r.Stdout != "alive\n" {
				t.Errorf("the sandbox afterwards: %+v", r)
			}
		})
	}
}

// A sandbox cannot reach another one.
func TestNeighbours(t *testing.T) {
	a, b := newBox(t, nil), newBox(t, nil)
	put(t, a, "/tmp/of-a", "secret of a")
	for _, c := range [][]string{
		{"sh", "-c", "cat /tmp/of-a; find / | grep of-a"},
		{"python3", "-c", "import os; print(os.path.exists('/tmp/of-a'))"},
		{"node", "-e", "console.log(require('fs').existsSync('/tmp/of-a'))"},
	} {
		if r := run(t, b, "", sandbar.Cmd{Args: c}); strings.Contains(r.Stdout, "secret") || strings.Contains(r.Stdout, "of-a") || strings.Contains(r.Stdout, "rue") {
			t.Errorf("%q in the neighbour: %+v", c, r)
		}
	}
}

// If a worker dies, only its sandbox is lost: running programs are Lost, later requests are Gone,
// and the driver continues.
func TestWorkerDies(t *testing.T) {
	box := newBox(t, nil)
	p, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"python3", "-c", "while True: pass"}}, driver.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	box.(*sandbox).b.worker.Kill()
	if r, err := p.Wait(); err != nil || r.Outcome != sandbar.Lost {
		t.Errorf("the program ended with %+v, %v", r, err)
	}
	<-box.(*sandbox).Dead()
	if _, err := box.Start(t.Context(), sandbar.Cmd{Args: []string{"true"}}, driver.Stdio{}); sandbar.CodeOf(err) != sandbar.Gone {
		t.Errorf("Start in a dead sandbox: %v", err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
