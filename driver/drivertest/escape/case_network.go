package escape

import (
	"context"
	"fmt"
	"io"
)

// networkCases are those of numbers 43 to 51 that concern a sandbox without a network.
func networkCases() []Case {
	return []Case{
		{ID: "43-loopback", Title: "a TCP service on the host's loopback, plain and multipath", Claim: Network, Leaks: true, Python: `
for proto in [0, 262]:
    for family, where in [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::ffff:127.0.0.1")]:
        try:
            with socket.socket(family, socket.SOCK_STREAM, proto) as s:
                s.settimeout(2); s.connect((where, int(env("BAIT_PORT")))); say(s.recv(100))
        except OSError as e: held(where, proto, why(e.errno))
done()`},
		{ID: "43-udp", Title: "a UDP service on the host's loopback", Claim: Network, Leaks: true, Python: `
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(5)
    try: s.connect(("127.0.0.1", int(env("BAIT_UDP")))); s.send(b"hello"); say(s.recv(100))
    except OSError as e: held("udp", why(e.errno))
done()`},
		{ID: "43-abstract", Title: "an abstract socket of the host", Claim: Network, Leaks: true, Python: `
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(2)
    try: s.connect("\0" + env("BAIT_ABSTRACT")); say(s.recv(100))
    except OSError as e: held("abstract", why(e.errno))
done()`},
		{ID: "43-socket-file", Title: "a socket in the host's file system", Claim: Files, Leaks: true, Python: `
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(2)
    try: s.connect(env("BAIT_SOCK")); say(s.recv(100))
    except OSError as e: held("socket", why(e.errno))
done()`},
		{ID: "43-families", Title: "raw, packet, VM and other sockets", Claim: Rights, Python: `
RAW, DGRAM, STREAM, SEQ = socket.SOCK_RAW, socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET
for what, args in [
        ("raw ICMP", (2, RAW, 1)), ("raw IP", (2, RAW, 255)), ("raw ICMPv6", (10, RAW, 58)), ("packet", (17, RAW, 3)), ("packet, cooked", (17, DGRAM, 3)),
        ("SCTP", (2, SEQ, 132)), ("DCCP", (2, 6, 33)), ("virtual machine", (40, STREAM, 0)), ("Bluetooth", (31, RAW, 1)), ("CAN", (29, RAW, 1)),
        ("TIPC", (30, SEQ, 0)), ("RDS", (21, SEQ, 0)), ("SMC", (43, STREAM, 0)), ("XDP", (44, RAW, 0)), ("kernel crypto", (38, SEQ, 0)), ("IPsec keys", (15, RAW, 2)),
        ("AppleTalk", (5, DGRAM, 0)), ("X.25", (9, SEQ, 0)), ("IPX", (4, DGRAM, 0)), ("AX.25", (3, DGRAM, 0)), ("Qualcomm", (42, DGRAM, 0)),
        ("netfilter netlink", (16, RAW, 12)), ("audit netlink", (16, RAW, 9)), ("uevent netlink", (16, RAW, 15)), ("IPsec netlink", (16, RAW, 6)),
        ("generic netlink", (16, RAW, 16)), ("connector netlink", (16, RAW, 11))]:
    def make():
        socket.socket(*args).close()
    attempt(what, make)
done()`},
		{ID: "43-interfaces", Title: "interfaces besides loopback", Claim: Network, Leaks: true, NeedsOutside: true, Python: `
for line in open("/proc/net/dev").readlines()[2:]:
    name = line.split(":")[0].strip()
    if name != "lo": escaped("interface", name)
done()`},
		{ID: "44-names", Title: "ask a name server", Claim: Network, Python: `
query = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
for where in ["127.0.0.53", "127.0.0.11", "8.8.8.8", "1.1.1.1", "224.0.0.251"]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.5)
        try: s.sendto(query, (where, 5353 if where.startswith("224") else 53)); s.recv(512)
        except OSError as e: held(where, why(e.errno)); continue
        escaped("an answer from", where)
done()`},
		{ID: "49-metadata", Title: "cloud metadata, the kubelet, daemons on loopback", Claim: Network, Python: `
for family, where, port in [(2, "169.254.169.254", 80), (2, "100.100.100.200", 80), (2, "169.254.170.2", 80), (10, "fd00:ec2::254", 80),
        (2, "127.0.0.1", 10250), (2, "127.0.0.1", 10255), (2, "127.0.0.1", 2375), (2, "127.0.0.1", 2376), (2, "127.0.0.1", 22), (10, "::1", 22)]:
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(0.5)
        attempt("connect to %s port %d" % (where, port), s.connect, (where, port))
done()`},
		{ID: "49-daemons", Title: "sockets of container engines and of the system", Claim: Files, Python: `
for path in ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock",
        "/run/systemd/private", "/run/systemd/notify", "/run/dbus/system_bus_socket", "/run/udev/control", "/run/snapd.socket", "/dev/log"]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET]:
        with socket.socket(socket.AF_UNIX, kind) as s:
            attempt("connect to " + path, s.connect, path)
done()`},
		{ID: "50-neighbour-network", Title: "another sandbox by loopback and abstract socket", Claim: Network, Leaks: true, NeedsPython: true,
			Attack: neighbour(`
import threading
t, a = socket.socket(), socket.socket(socket.AF_UNIX)
t.bind(("127.0.0.1", 0)); a.bind("\0" + sys.argv[1])
def serve(l):
    l.listen()
    while True:
        c, _ = l.accept(); c.sendall(secret.encode()); c.close()
for l in [t, a]: threading.Thread(target=serve, args=[l], daemon=True).start()
where = t.getsockname()[1]
`, `
for family, to in [(socket.AF_INET, ("127.0.0.1", int(where))), (socket.AF_UNIX, "\0" + sys.argv[1])]:
    with socket.socket(family) as s:
        s.settimeout(2)
        try: s.connect(to); say(s.recv(100))
        except OSError as e: held(to, why(e.errno))
done()`, ``)},
		{ID: "50-neighbour-files", Title: "another sandbox by files in places that all can write", Claim: Files, Leaks: true, NeedsPython: true,
			Attack: neighbour(`
paths = [os.path.join(d, sys.argv[1]) for d in ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", HOME]]
for p in list(paths):
    try: open(p, "w").write(secret); os.chmod(p, 0o644)
    except OSError: paths.remove(p)
where = ":".join(paths)
`, `
for p in where.split(":"):
    try: say(open(p).read())
    except OSError as e: held(p, why(e.errno))
done()`, `
for p in paths: os.unlink(p)
`)},
		{ID: "50-neighbour-segment", Title: "another sandbox by a System V segment", Claim: Kernel, Leaks: true, NeedsPython: true,
			Attack: neighbour(`
libc.shmat.restype = ctypes.c_void_p
where = int.from_bytes(os.urandom(3), "big") + 1
segment = libc.shmget(where, ctypes.c_size_t(4096), 0o3666) # must be new
at = libc.shmat(segment, None, 0) if segment >= 0 else None
if segment >= 0: ctypes.memmove(at, secret.encode() + b"\0", len(secret) + 1)
`, `
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(int(where), ctypes.c_size_t(4096), 0)
if segment < 0: held("shmget", why(ctypes.get_errno()))
else: say(ctypes.string_at(libc.shmat(segment, None, 0o10000)))
done()`, `
if segment >= 0: libc.shmctl(segment, 0, None)
`)},
		{ID: "51-outside", Title: "a service on another address of the host", Claim: Network, Leaks: true, NeedsOutside: true, Python: `
with socket.socket() as s:
    s.settimeout(2)
    try: s.connect((env("BAIT_OUTSIDE"), int(env("BAIT_OUTSIDE_PORT")))); say(s.recv(100))
    except OSError as e: held("connect", why(e.errno))
done()`},
	}
}

// neighbour makes an Attack with two sandboxes. The program of the first gets the secret, offers it
// in its sandbox and prints the address. The program of the second gets the address and tries to
// read the secret. Then the first cleans up.
func neighbour(offer, take, clear string) func(context.Context, *Scene) error {
	return func(ctx context.Context, s *Scene) error {
		a, err := s.Box(ctx)
		if err != nil {
			return err
		}
		b, err := s.Box(ctx)
		if err != nil {
			return err
		}
		out := &limitedBuffer{}
		stdin, tell := io.Pipe()
		defer tell.Close()
		p, err := s.Begin(ctx, a, `
secret = sys.stdin.readline().strip()
`+offer+`
say("WHERE", where, "END")
sys.stdin.read()
`+clear+`
say("CLEARED")`, stdin, out)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(tell, s.Bait.Secret); err != nil {
			return err
		}
		if err := awaitText(ctx, out, "END"); err != nil {
			return err
		}
		var where string
		fmt.Sscanf(out.String(), "WHERE %s END", &where)
		_, err = s.Program(ctx, b, fmt.Sprintf("where = %q\n%s", where, take), "")
		tell.Close()
		if _, werr := wait(ctx, p); err == nil {
			err = werr
		}
		return err
	}
}
