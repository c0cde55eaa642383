"""Drives an executor with the real koyeb-sdk, as its users do.

usage: checks.py sync|async|create|create-async

EXECUTOR_URL, EXECUTOR_PROXY (host:port) and EXECUTOR_SECRET name a plain
executor; create and create-async go through the control plane of
KOYEB_API_HOST instead. Prints a line per check that held and exits with 1 at
the first that does not.
"""

import asyncio
import inspect
import os
import socket
import sys
import tempfile
import time

from koyeb.sandbox import AsyncSandbox, Sandbox, SandboxError
from koyeb.sandbox.filesystem import (
    SandboxFileExistsError,
    SandboxFileNotFoundError,
    SandboxFilesystemError,
)


def check(name, got, want=True):
    if got != want:
        print(f"FAIL {name}: got {got!r}, want {want!r}")
        sys.exit(1)
    print(f"ok {name}", flush=True)


async def done(value):
    """The result of a call, whichever of the two clients made it."""
    return await value if inspect.isawaitable(value) else value


async def raises(name, kind, call):
    try:
        await done(call())
    except kind as e:
        check(name, True)
        return e
    except Exception as e:  # noqa: BLE001
        check(name, f"{type(e).__name__}: {e}", kind.__name__)
    check(name, "no error", kind.__name__)


async def poll(name, condition):
    for _ in range(600):
        if await condition():
            check(name, True)
            return
        await asyncio.sleep(0.05)
    check(name, "never")


async def commands(sb):
    r = await done(sb.exec("echo hello; echo oops >&2", stream=False))
    check("exec", (r.stdout, r.stderr, r.exit_code, r.success), ("hello\n", "oops\n", 0, True))
    r = await done(sb.exec("exit 7", stream=False))
    check("exec exit code", (r.exit_code, r.success), (7, False))
    r = await done(sb.exec("pwd; echo $A-$B", cwd="/tmp", env={"A": "1", "B": "é x"}, stream=False))
    check("exec cwd and env", r.stdout, "/tmp\n1-é x\n")
    r = await done(sb.exec("head -c 200000 /dev/zero | tr '\\0' e >&2; echo out", stream=False))
    check("exec 200 kB on stderr", (r.stdout, len(r.stderr)), ("out\n", 200000))
    # An emulated machine writes some MB/s on a busy host: the SDK's 30 s are too short for 64 MiB.
    r = await done(sb.exec("head -c 100000000 /dev/zero | tr '\\0' x", stream=False, timeout=150))
    check("exec with more output than an answer holds", (len(r.stdout), r.exit_code), (64 << 20, -1))
    r = await done(sb.exec("kill -9 $$", stream=False))
    check("exec killed", r.exit_code, -1)
    began = time.monotonic()
    r = await done(sb.exec("sleep 25 & echo x", stream=False))
    check("exec with a child in the background", (r.stdout, time.monotonic() - began < 20), ("x\n", True))
    r = await done(sb.exec("cat", stream=False))
    check("exec has an empty input", (r.stdout, r.exit_code), ("", 0))

    out, err = [], []
    r = await done(sb.exec("for i in 1 2 3; do echo line $i; echo err $i >&2; done; exit 3",
                           on_stdout=out.append, on_stderr=err.append))
    check("streaming", (out, err, r.exit_code),
          (["line 1", "line 2", "line 3"], ["err 1", "err 2", "err 3"], 3))
    out = []
    r = await done(sb.exec("printf 'a\\n\\nb'; seq 1 20000", on_stdout=out.append))
    check("streaming every line", out, ["a", "", "b1"] + [str(i) for i in range(2, 20001)])
    out = []
    await done(sb.exec("head -c 2097152 /dev/zero | tr '\\0' x; echo", on_stdout=out.append))
    check("streaming a line of 2 MiB", [len(x) for x in out], [2097152])
    r = await done(sb.exec("echo no; exit 1"))
    check("streaming without callbacks", (r.stdout, r.exit_code), ("no", 1))
    await raises("exec in a missing directory", Exception, lambda: sb.exec("true", cwd="/no/such", stream=False))


async def files(sb, work):
    fs = sb.filesystem
    await done(fs.mkdir(f"{work}/a/b"))
    await done(fs.write_file(f"{work}/a/f.txt", "zwölf\n"))
    check("read back", (await done(fs.read_file(f"{work}/a/f.txt"))).content, "zwölf\n")
    await done(fs.write_file(f"{work}/a/f.txt", ""))
    check("empty file", (await done(fs.read_file(f"{work}/a/f.txt"))).content, "")
    data = bytes(range(256)) * 400
    await done(fs.write_file(f"{work}/bin", data, encoding="base64"))
    check("base64 is the client's affair", (await done(fs.read_file(f"{work}/bin", encoding="base64"))).content, data)
    check("list", sorted(await done(fs.list_dir(f"{work}/a"))), ["b", "f.txt"])
    check("list an empty directory", await done(fs.list_dir(f"{work}/a/b")), [])
    check("exists", [await done(fs.exists(f"{work}/{p}")) for p in ("a", "bin", "no")], [True, True, False])
    check("is_file, is_dir", [await done(fs.is_file(f"{work}/bin")), await done(fs.is_dir(f"{work}/bin")),
                              await done(fs.is_dir(f"{work}/a"))], [True, False, True])
    await done(fs.rename_file(f"{work}/bin", f"{work}/bin 2"))
    await done(fs.move_file(f"{work}/bin 2", f"{work}/a/bin"))
    check("rename and move", sorted(await done(fs.ls(f"{work}/a"))), ["b", "bin", "f.txt"])
    await done(fs.write_files([{"path": f"{work}/m{i}", "content": str(i)} for i in range(5)]))
    check("write_files", (await done(fs.read_file(f"{work}/m4"))).content, "4")
    with tempfile.TemporaryDirectory() as d:
        big = os.urandom(3 << 20).hex()
        with open(f"{d}/up", "w") as f:
            f.write(big)
        await done(fs.upload_file(f"{d}/up", f"{work}/up"))
        await done(fs.download_file(f"{work}/up", f"{d}/down"))
        with open(f"{d}/down") as f:
            check("upload and download", f.read() == big)
        with open(f"{d}/data", "w") as f:
            for i in range(96):
                f.write(f"{i:15}\n" * 65536)
        await done(fs.upload_file(f"{d}/data", f"{work}/data"))
        r = await done(sb.exec(f"wc -c <{work}/data; tail -n 1 {work}/data; rm {work}/data", stream=False))
        check("upload of 96 MiB", r.stdout.split(), [str(96 << 20), "95"])
    f = fs.open(f"{work}/log", "a")
    await done(f.write("one\n"))
    await done(f.write("two\n"))
    check("append", (await done(fs.read_file(f"{work}/log"))).content, "one\ntwo\n")

    missing = f"{work}/missing"
    await raises("read: missing", SandboxFileNotFoundError, lambda: fs.read_file(missing))
    await raises("list: missing", SandboxFileNotFoundError, lambda: fs.list_dir(missing))
    await raises("delete: missing", SandboxFileNotFoundError, lambda: fs.delete_file(missing))
    await raises("rename: missing", SandboxFileNotFoundError, lambda: fs.rename_file(missing, work))
    await raises("rm: missing", SandboxFileNotFoundError, lambda: fs.rm(missing))
    await raises("write: missing parent", SandboxFilesystemError, lambda: fs.write_file(f"{missing}/x", "x"))
    await raises("mkdir over a file", SandboxFilesystemError, lambda: fs.mkdir(f"{work}/log"))
    await raises("read a directory", SandboxFilesystemError, lambda: fs.read_file(work))
    assert not issubclass(SandboxFilesystemError, SandboxFileExistsError)

    await done(fs.delete_file(f"{work}/log"))
    await done(fs.delete_dir(f"{work}/a"))
    await done(fs.delete_dir(f"{work}/never/was"))
    await done(fs.rm(f"{work}/up"))
    await done(fs.rm(work, recursive=True))
    check("deleted", await done(fs.exists(work)), False)


async def processes(sb):
    async def status(of):
        return {p.id: p.status for p in await done(sb.list_processes())}.get(of)

    pid = await done(sb.launch_process("sleep 1000", cwd="/tmp", env={"X": "y"}))
    listed = [p for p in await done(sb.list_processes()) if p.id == pid]
    check("launched", [(p.command, p.status, p.pid > 0) for p in listed], [("sleep 1000", "running", True)])
    await done(sb.kill_process(pid))
    check("killed", await status(pid), "killed")
    await raises("kill again", SandboxError, lambda: sb.kill_process(pid))
    await raises("kill unknown", SandboxError, lambda: sb.kill_process("nobody"))
    good = await done(sb.launch_process("true"))
    bad = await done(sb.launch_process("exit 3"))

    async def ended():
        return (await status(good), await status(bad)) == ("completed", "failed")

    await poll("completed and failed", ended)
    for _ in range(3):
        await done(sb.launch_process("setsid sleep 1000 & sleep 1000"))
    check("kill_all_processes", await done(sb.kill_all_processes()), 3)
    r = await done(sb.exec("ps -e -o args= 2>/dev/null | grep -c '^sleep 1000' || true", stream=False))
    check("whole trees are gone", r.stdout.strip(), "0")


SERVER = """python3 -c '
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"inside " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8123), H).serve_forever()
'"""


def ask(proxy, path):
    host, port = proxy.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=10) as s:
            s.sendall(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
            data = b""
            while piece := s.recv(65536):
                data += piece
            return data.split(b"\r\n\r\n", 1)[-1].decode()
    except OSError:
        return ""


async def ports(sb, proxy):
    server = await done(sb.launch_process(SERVER))
    r = await done(sb.expose_port(8123))
    check("exposed", r.port, 8123)

    async def answers():
        return await asyncio.to_thread(ask, proxy, "/x") == "inside /x"

    await poll("proxied", answers)
    await done(sb.expose_port(8124))
    check("another port in its place, where nothing listens", await asyncio.to_thread(ask, proxy, "/x"), "")
    await done(sb.expose_port(8123))
    check("back again", await asyncio.to_thread(ask, proxy, "/y"), "inside /y")
    await done(sb.unexpose_port())
    check("nothing bound", await asyncio.to_thread(ask, proxy, "/x"), "")
    await done(sb.unexpose_port())
    await raises("not a port", ValueError, lambda: sb.expose_port(70000))
    await done(sb.kill_process(server))


async def refused(kind, url):
    stranger = kind(sandbox_id="x", app_id="x", service_id="x", sandbox_secret="wrong")
    stranger._sandbox_url = (url, None)
    await raises("wrong secret", Exception, lambda: stranger.exec("true", stream=False))


async def plain(kind):
    url, proxy = os.environ["EXECUTOR_URL"], os.environ["EXECUTOR_PROXY"]
    sb = kind(sandbox_id="x", app_id="x", service_id="x", sandbox_secret=os.environ["EXECUTOR_SECRET"])
    sb._sandbox_url, sb._url = (url, None), "http://" + proxy
    if kind is Sandbox:
        check("health", sb._check_executor_health())
    else:
        check("health", await sb._async_check_executor_health())
    await commands(sb)
    await files(sb, "/tmp/work")
    await processes(sb)
    await ports(sb, proxy)
    await refused(kind, url)


async def created(kind):
    """The whole way: create, use, find again, delete."""
    before = await done(kind.create(name="first", env={"GREETING": "hi"}, timeout=60))
    again = await done(kind.get_from_id(before.service_id))
    other = await done(kind.create(name="second", timeout=60))
    check("two sandboxes", before.service_id != other.service_id)
    check("healthy", await done(again.is_healthy()))
    await done(before.filesystem.write_file("/tmp/mine", "first"))
    check("the same one", (await done(again.filesystem.read_file("/tmp/mine"))).content, "first")
    await raises("another one", SandboxFileNotFoundError, lambda: other.filesystem.read_file("/tmp/mine"))
    r = await done(before.exec("echo $GREETING ${SANDBOX_SECRET:-none}", stream=False))
    check("its environment, without the secret", r.stdout, "hi none\n")
    await commands(before)
    await files(other, "/tmp/work")
    await processes(before)
    await done(before.delete())

    async def gone():
        try:
            await done(before.exec("true", stream=False))
        except Exception:  # noqa: BLE001
            return True
        return False

    await poll("deleted", gone)
    r = await done(other.exec("echo still here", stream=False))
    check("the other one lives", r.stdout, "still here\n")
    await done(other.delete())


if __name__ == "__main__":
    what = sys.argv[1]
    kind = AsyncSandbox if "async" in what else Sandbox
    asyncio.run(created(kind) if what.startswith("create") else plain(kind))
