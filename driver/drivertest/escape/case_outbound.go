package escape

// outboundCases are numbers 43 to 51 from sandboxes with sandbar.NetworkOutbound and the default
// rules.
func outboundCases() []Case {
	return []Case{
		{ID: "43-outbound-device", Title: "change the outbound network: addresses, routes, another device, raw packets", Claim: Network, NeedsOutbound: true, Python: `
import fcntl
attempt("open the maker of devices", open, "/dev/net/tun", "r+b")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
name = [l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:] if not l.strip().startswith("lo:")][0].encode()
address = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton("10.0.0.2"))
for what, call, arg in [("set an address", 0x8916, address), ("bring it down", 0x8914, struct.pack("16sH14x", name, 0)),
        ("set the largest packet", 0x8922, struct.pack("16si12x", name, 1000)), ("rename it", 0x8923, struct.pack("16s16s", name, b"other"))]:
    attempt(what, fcntl.ioctl, s, call, arg)
r = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); r.settimeout(5)
index = socket.if_nametoindex(name.decode())
for what, kind, body in [("add an address", 20, struct.pack("BBBBI", 2, 24, 0, 0, index) + struct.pack("HH4s", 8, 2, b"\x0a\0\0\2")),
        ("add a route", 24, struct.pack("BBBBBBBBI", 2, 8, 0, 0, 254, 4, 0, 1, 0) + struct.pack("HH4s", 8, 1, b"\x0a\0\0\0") + struct.pack("HHI", 8, 4, index)),
        ("remove the device", 17, struct.pack("BBHiII", 0, 0, 0, index, 0, 0))]:
    r.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    e = struct.unpack("i", r.recv(4096)[16:20])[0]
    if e == 0: escaped(what)
    else: held(what, why(-e))
for what, args in [("raw IP", (2, 3, 255)), ("raw ICMP", (2, 3, 1)), ("packets", (17, 3, 3)), ("raw IPv6", (10, 3, 255))]:
    attempt(what, socket.socket, *args)
for level, option, what in [(0, 19, "IP_TRANSPARENT"), (1, 36, "SO_MARK")]:
    attempt(what, s.setsockopt, level, option, 1)
done()`},
		{ID: "44-outbound-zone", Title: "send the gateway zone transfers, many queries and malformed queries", Claim: Network, NeedsOutbound: true, Python: `
gateway = ("192.0.0.1", 53)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)
s.sendto(b"\x12\x34\0\0\0\1\0\0\0\0\0\0\7example\0\0\xfc\0\1", gateway)
code = s.recv(4096)[3] & 15
if code != 5: escaped("a zone is asked for: code", code)
for junk in [b"", b"\0", os.urandom(11), os.urandom(600), b"\xff" * 4000]: s.sendto(junk, gateway)
for port in [22, 80, 853, 5353]:
    with socket.socket() as t:
        t.settimeout(20)
        attempt("connect to the gateway's port %d" % port, t.connect, (gateway[0], port))
done()`},
		{ID: "46-outbound-forms", Title: "this machine by every notation of its address", Claim: Network, NeedsOutbound: true, Python: `
forms = ["127.1", "0x7f.1", "2130706433", "017700000001", "0", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "::127.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "LOCALHOST", "fe80::1"]
forms += ["192.0.0.%d" % i for i in range(8)] + ["fd5b:a4d1:7c32::1", "10.0.2.2", "10.0.2.3", "169.254.1.1", "172.17.0.1", "192.168.65.2", "100.64.0.1"]
for where in forms:
    for port in [int(env("BAIT_PORT")), int(env("BAIT_OUTSIDE_PORT", "1"))]:
        try:
            with socket.create_connection((where, port), timeout=20) as s: say(s.recv(100))
        except OSError as e: held(where, e)
    with socket.socket(socket.AF_INET6 if ":" in where else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        try: s.sendto(b"hello", (where, int(env("BAIT_UDP")))); say(s.recv(100))
        except OSError as e: held(where, "udp", e)
done()`},
		{ID: "49-outbound-metadata", Title: "cloud metadata, agents and private networks", Claim: Network, NeedsOutbound: true, Python: `
for where in ["169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254",
        "10.0.0.1", "172.16.0.1", "192.168.0.1", "192.168.1.1", "198.18.0.1", "fd00::1", "fd00::2", "fe80::1"]:
    for port in [80, 443, 10250, 25, 53]:
        with socket.socket(socket.AF_INET6 if ":" in where else socket.AF_INET) as s:
            s.settimeout(20)
            attempt("connect to %s port %d" % (where, port), s.connect, (where, port))
for where in ["224.0.0.251", "255.255.255.255", "ff02::fb", "ff0e::1", "192.0.0.7"]:
    with socket.socket(socket.AF_INET6 if ":" in where else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.settimeout(0.2)
        try: s.sendto(b"x", (where, 5353)); s.recv(100); escaped("an answer from", where)
        except OSError as e: held(where, e)
done()`},
		{ID: "50-outbound-neighbour", Title: "another sandbox that reaches out, by its address", Claim: Network, NeedsPython: true, NeedsOutbound: true,
			Attack: neighbour(`
import threading
l, u = socket.create_server(("", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(l.getsockname())
def serve():
    while True:
        c, _ = l.accept(); c.sendall(secret.encode()); c.close()
def datagrams():
    while True: u.sendto(secret.encode(), u.recvfrom(100)[1])
for f in [serve, datagrams]: threading.Thread(target=f, daemon=True).start()
where = l.getsockname()[1]
`, `
for a in ["192.0.0.%d" % i for i in range(8)] + ["fd5b:a4d1:7c32::%d" % i for i in range(1, 4)]:
    try:
        with socket.create_connection((a, int(where)), timeout=20) as s: say(s.recv(100))
    except OSError as e: held(a, e)
    with socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2)
        try: s.sendto(b"x", (a, int(where))); say(s.recv(100))
        except OSError as e: held(a, "udp", e)
done()`, ``)},
		{ID: "51-outbound-host", Title: "services on the host's own addresses, from a sandbox that reaches out", Claim: Network, NeedsOutside: true, NeedsOutbound: true, Python: `
a = env("BAIT_OUTSIDE")
for where in [a, "::ffff:" + a, "64:ff9b::" + a]:
    try:
        with socket.create_connection((where, int(env("BAIT_OUTSIDE_PORT"))), timeout=20) as s: say(s.recv(100))
    except OSError as e: held(where, e)
done()`},
	}
}
