"""Drives the PyPI packages e2b and e2b-code-interpreter against a daemon: every public method that
docs/e2b.md lists as served, with the client named by the argument, sync or async. Prints "ok NAME"
for each check, and fails at the first that does not hold."""

import asyncio
import inspect
import os
import sys
import threading
import time
import urllib.error
import urllib.request

import surface  # records the calls
import e2b
import e2b_code_interpreter
from e2b import (AuthenticationException, CommandExitException, FileNotFoundException, FilesystemEventType, FileType,
                 InvalidArgumentException, PtySize, SandboxException, SandboxQuery, SandboxState, TimeoutException)

SYNC = sys.argv[1] == "sync"
Sandbox = e2b.Sandbox if SYNC else e2b.AsyncSandbox
Interpreter = e2b_code_interpreter.Sandbox if SYNC else e2b_code_interpreter.AsyncSandbox
URL = os.environ["E2B_API_URL"]
LACKS = os.environ.get("E2B_TEST_LACKS", "").split()  # what the sandboxes of the daemon do not have
made = []
checks = []


def check(f):
    checks.append(f)
    return f


async def go(x):
    return await x if inspect.isawaitable(x) else x


async def create(kind=Sandbox, **opts):
    s = await go(kind.create(**opts))
    made.append(s)
    return s


def equal(got, want):
    assert got == want, f"got {str(got)[:400]!r}, want {str(want)[:400]!r}"


async def throws(kind, f, text=""):
    try:
        got = await go(f())
    except kind as e:
        assert text in str(e), f"{text!r} is not in {e!r}"
        return e
    raise AssertionError(f"no {kind}, but {got!r}")


async def until(what, f):
    for _ in range(300):
        if await go(f()):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("never: " + what)


def fetch(url, headers={}, data=None, method=None):
    r = urllib.request.Request(url, headers=headers, data=data, method=method)
    try:
        with urllib.request.urlopen(r) as resp:
            return resp.status, resp.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


@check
async def create_and_info(t):
    t.s = s = await create(metadata={"owner": "me & you", "ü/=%": "ä b%20"}, envs={"FROM": "create"}, timeout=60)
    equal(await go(s.is_running()), True)
    info = await go(s.get_info())
    equal((info.sandbox_id, info.metadata["ü/=%"], info.state, info.template_id), (s.sandbox_id, "ä b%20", SandboxState.RUNNING, "base"))
    equal((await go(Sandbox.get_info(s.sandbox_id))).sandbox_id, s.sandbox_id)
    await go(s.set_timeout(600))
    assert (await go(s.get_info())).end_at.timestamp() - time.time() > 500
    await go(Sandbox.set_timeout(s.sandbox_id, 300))
    assert (await go(s.get_info())).end_at.timestamp() - time.time() < 301
    for m in await go(s.get_metrics()):
        assert 0 <= m.cpu_used_pct <= 110 * m.cpu_count and 0 < m.mem_used <= m.mem_total, m
    if "saves" in LACKS:
        await throws(SandboxException, lambda: s.pause(keep_memory=False), "501")
        return
    await throws(SandboxException, lambda: s.pause(), "keep_memory")
    p = await create()
    equal(await go(p.beta_pause(keep_memory=False)), True)
    await go(p.connect())
    await go(p.files.write("kept", "kept"))
    equal(await go(p.pause(keep_memory=False)), True)
    equal(await go(p.is_running()), False)
    again = await go(Sandbox.connect(p.sandbox_id))
    equal(await go(again.files.read("kept")), "kept")
    equal(await go(again.kill()), True)


@check
async def connect_list_kill(t):
    again = await go(Sandbox.connect(t.s.sandbox_id, timeout=10))
    equal((await go(again.commands.run("echo $FROM"))).stdout, "create\n")
    assert (await go(again.get_info())).end_at.timestamp() - time.time() > 200
    await throws(SandboxException, lambda: Sandbox.connect("iaaaaaaaaaaaaaaaaaaaaaaaaaa"), "not found")
    await throws(AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))
    more = [await create(metadata={"many": "x"}), await create(metadata={"many": "x"}, allow_internet_access=False)]
    page, seen = Sandbox.list(query=SandboxQuery(metadata={"many": "x"}), limit=1), []
    while page.has_next:
        seen += [i.sandbox_id for i in await go(page.next_items())]
    equal(seen, [more[1].sandbox_id, more[0].sandbox_id])
    query = SandboxQuery(metadata={"owner": "me & you", "ü/=%": "ä b%20"})
    equal([i.sandbox_id for i in await go(Sandbox.list(query=query).next_items())], [t.s.sandbox_id])
    for m in more:
        equal(await go(m.kill()), True)
    equal((await go(more[0].kill()), await go(more[0].is_running())), (False, False))


@check
async def snapshots(t):
    p = await create()
    await go(p.files.write("kept", "one"))
    if not os.environ.get("E2B_TEST_GROUPS"):
        await throws(SandboxException, lambda: p.create_snapshot(), "501")
        equal(await go(p.kill()), True)
        return
    snapshot = await go(p.create_snapshot())
    await go(p.files.write("kept", "two"))
    copies = await go(p.fork(count=2))
    made.extend(copies)
    equal([await go(c.files.read("kept")) for c in copies], ["two", "two"])
    equal([i.snapshot_id for i in await go(p.list_snapshots().next_items())], [snapshot.snapshot_id])
    c = await create(template=snapshot.snapshot_id)
    equal(await go(c.files.read("kept")), "one")
    equal((await go(Sandbox.delete_snapshot(snapshot.snapshot_id)), await go(Sandbox.delete_snapshot(snapshot.snapshot_id))), (True, False))
    for x in [p, c, *copies]:
        equal(await go(x.kill()), True)


@check
async def network(t):
    await throws(SandboxException, lambda: Sandbox.create(network={"allow_out": ["example.com"]}), "501")
    off = await create(allow_internet_access=False)
    await throws(SandboxException, lambda: off.update_network({"allow_internet_access": True}), "501")
    equal(await go(off.kill()), True)
    host, _, port = os.environ.get("E2B_TEST_WORLD", "").partition(" ")
    if not host:
        return
    n = await create(network={"deny_out": [host]})
    for update, want in ((None, "refused\n"), ({}, "the world\n"), ({"allow_internet_access": False}, "refused\n")):
        if update is not None:
            await go(n.update_network(update))
        equal((await go(n.commands.run(f"curl -s -m 60 http://{host}:{port}/ || echo refused"))).stdout, want)
    equal((await go(n.get_info())).allow_internet_access, False)
    equal(await go(n.kill()), True)


@check
async def git(t):
    if "git" in LACKS:
        return
    s = await create()
    g = s.git
    await go(g.configure_user("A", "a@example.com"))
    await go(g.set_config("init.defaultBranch", "main"))
    equal((await go(g.get_config("user.name")), await go(g.get_config("no.such"))), ("A", None))
    await go(g.init("remote", bare=True, initial_branch="main"))
    await go(g.init("repo", initial_branch="main"))
    await go(s.files.write("repo/a", "one"))
    await go(g.add("repo"))
    equal([f.name for f in (await go(g.status("repo"))).file_status], ["a"])
    await go(g.commit("repo", "first"))
    await go(g.remote_add("repo", "origin", "/home/user/remote"))
    equal(await go(g.remote_get("repo", "origin")), "/home/user/remote")
    await go(g.push("repo", remote="origin", branch="main"))
    await go(g.clone("/home/user/remote", path="copy"))
    equal(await go(s.files.read("copy/a")), "one")
    await go(g.create_branch("repo", "other"))
    equal(sorted((await go(g.branches("repo"))).branches), ["main", "other"])
    await go(g.checkout_branch("repo", "main"))
    await go(g.delete_branch("repo", "other"))
    await go(s.files.write("repo/a", "two"))
    await go(g.restore("repo", ["a"]))
    equal(await go(s.files.read("repo/a")), "one")
    await go(g.pull("copy", remote="origin", branch="main"))
    await go(s.files.write("repo/a", "three"))
    await go(g.reset("repo", mode="hard"))
    equal((await go(g.status("repo"))).file_status, [])
    await go(g.dangerously_authenticate("u", "p", host="git.example"))
    assert "u:p@git.example" in await go(s.files.read(".git-credentials"))
    equal(await go(s.kill()), True)


@check
async def commands(t):
    s, out, err = t.s, [], []
    r = await go(s.commands.run("echo out; echo err >&2; pwd; echo $A", envs={"A": "ä"}, on_stdout=out.append, on_stderr=err.append))
    equal((r.exit_code, r.stdout, r.stderr), (0, "out\n/home/user\nä\n", "err\n"))
    equal(("".join(out), "".join(err)), (r.stdout, r.stderr))
    equal((await go(s.commands.run("pwd", cwd="/tmp", user="root"))).stdout, "/tmp\n")
    e = await throws(CommandExitException, lambda: s.commands.run("echo no >&2; exit 3"))
    equal((e.exit_code, e.stderr), (3, "no\n"))
    await throws(InvalidArgumentException, lambda: s.commands.run("true", cwd="/nowhere"), "does not exist")
    await throws(AuthenticationException, lambda: s.commands.run("true", user="nobody"), "invalid username")
    await throws(TimeoutException, lambda: s.commands.run("sleep 60", timeout=0.5))


@check
async def background(t):
    s = t.s
    c = await go(s.commands.run("while read line; do echo got $line; done; echo end", background=True, stdin=True))
    assert any(p.pid == c.pid for p in await go(s.commands.list()))
    await go(s.commands.send_stdin(c.pid, "one\n"))
    await go(c.send_stdin("two\n"))
    if SYNC:
        s.commands.stream_input(c.pid, ["thr", b"ee\n"])
    else:
        stream = s.commands.stream_input(c.pid)
        await stream.send("thr")
        await stream.send(b"ee\n")
        await stream.close()
    await go(c.close_stdin())
    equal((await go(c.wait())).stdout, "got one\ngot two\ngot three\nend\n")
    sleeper = await go(s.commands.run("sleep 1000", background=True, timeout=0))
    await go(sleeper.disconnect())
    follow = await go(s.commands.connect(sleeper.pid, timeout=0))
    other = await go(s.commands.run("sleep 1000", background=True, timeout=0))
    equal(await go(other.kill()), True)
    quiet = await go(s.commands.run("cat", background=True, stdin=True))
    await go(s.commands.close_stdin(quiet.pid))
    equal((await go(quiet.wait())).exit_code, 0)
    equal(await go(s.commands.kill(sleeper.pid)), True)
    equal((await throws(CommandExitException, lambda: follow.wait())).exit_code, -1)
    await until("it is gone", lambda: kill_again(s, sleeper.pid))


async def kill_again(s, pid):
    return not await go(s.commands.kill(pid))


@check
async def pty(t):
    s, seen = t.s, []
    if SYNC:
        p = s.pty.create(PtySize(rows=20, cols=70), timeout=0)
        reader = threading.Thread(target=lambda: seen.append(code_of(p.wait, seen)))
        reader.start()
    else:
        p = await s.pty.create(PtySize(rows=20, cols=70), on_data=seen.append, timeout=0)
    await go(s.pty.send_stdin(p.pid, b"stty size\n"))
    await until("the size", lambda: b"20 70" in b"".join(x for x in seen if isinstance(x, bytes)))
    await go(s.pty.resize(p.pid, PtySize(rows=30, cols=90)))

    async def resized():
        await go(s.pty.send_stdin(p.pid, b"stty size\n"))
        await asyncio.sleep(0.2)
        return b"30 90" in b"".join(x for x in seen if isinstance(x, bytes))
    await until("the new size", resized)
    await go(s.pty.send_stdin(p.pid, b"exit 5\n"))
    if SYNC:
        reader.join(30)
        equal(seen[-1], 5)
    else:
        equal((await throws(CommandExitException, lambda: p.wait())).exit_code, 5)
    other = await go(s.pty.create(PtySize(rows=20, cols=70), **({} if SYNC else {"on_data": seen.append})))
    follow = await go(s.pty.connect(other.pid, **({} if SYNC else {"on_data": seen.append})))
    if SYNC:
        s.pty.stream_input(other.pid, [b"echo in\n"])
    else:
        stream = s.pty.stream_input(other.pid)
        await stream.send(b"echo in\n")
        await stream.close()
    await go(follow.disconnect())
    equal(await go(s.pty.kill(other.pid)), True)


def code_of(wait, seen):
    try:
        return wait(on_pty=seen.append).exit_code
    except CommandExitException as e:
        return e.exit_code


@check
async def files(t):
    f = t.s.files
    w = await go(f.write("dir/sub/a.txt", "hällo"))
    equal((w.name, w.path), ("a.txt", "/home/user/dir/sub/a.txt"))
    equal((await go(f.read("dir/sub/a.txt")), await go(f.read("~/dir/sub/a.txt"))), ("hällo", "hällo"))
    data = bytes(range(256)) * 4096
    await go(f.write("bytes", data))
    equal(bytes(await go(f.read("bytes", format="bytes"))), data)
    stream = await go(f.read("bytes", format="stream"))
    parts = list(stream) if SYNC else [p async for p in stream]
    equal(b"".join(parts), data)
    await go(f.write("zipped", "z" * 100_000, gzip=True))
    equal(await go(f.read("zipped", gzip=True)), "z" * 100_000)
    many = await go(f.write_files([{"path": "many/1", "data": "one"}, {"path": "/home/user/many/2", "data": "two"}]))
    equal([x.path for x in many], ["/home/user/many/1", "/home/user/many/2"])
    equal([(x.name, x.type) for x in await go(f.list("many"))], [("1", FileType.FILE), ("2", FileType.FILE)])
    equal((await go(f.make_dir("made/deep")), await go(f.make_dir("made/deep"))), (True, False))
    i = await go(f.get_info("many/1"))
    equal((i.size, i.permissions, i.owner), (3, "-rw-r--r--", "user"))
    equal((await go(f.rename("many/1", "made/new/1"))).path, "/home/user/made/new/1")
    equal((await go(f.exists("many/1")), await go(f.exists("made/new/1"))), (False, True))
    await go(f.remove("made"))
    await throws(FileNotFoundException, lambda: f.read("nothing"))
    await throws(FileNotFoundException, lambda: f.list("nowhere"))


@check
async def watch(t):
    s, seen = t.s, []
    await go(s.files.make_dir("watched/below"))
    if SYNC:
        w = s.files.watch_dir("watched", recursive=True)
    else:
        w = await s.files.watch_dir("watched", on_event=seen.append, recursive=True)
    await go(s.files.write("watched/below/f", "x"))
    await go(s.commands.run("rm watched/below/f"))

    async def have():
        if SYNC:
            seen.extend(w.get_new_events())
        got = [(e.type, e.name) for e in seen]
        return all((k, "below/f") in got for k in (FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE))
    await until("the events", have)
    await go(w.stop())


@check
async def urls(t):
    s = t.s
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nsigned\r\n--b--\r\n'
    for opts in ({}, {"use_signature_expiration": 60}, {"user": "root"}):
        status, text = fetch(s.upload_url("signed.txt", **opts), {"Content-Type": "multipart/form-data; boundary=b"}, body)
        equal(status, 200)
        equal(fetch(s.download_url("signed.txt", **opts)), (200, b"signed"))
    equal(fetch(s.download_url("signed.txt", use_signature_expiration=-60))[0], 401)
    await go(s.files.write("web/index.html", "a page"))
    server = await go(s.commands.run("python3 -m http.server 8000", background=True, cwd="/home/user/web", timeout=0))
    await until("the page", lambda: fetch(URL, {"Host": s.get_host(8000)}) == (200, b"a page"))
    await go(server.kill())
    await until("it is closed", lambda: b"port is not open" in fetch(URL, {"Host": s.get_host(8000)})[1])


@check
async def run_code(t):
    t.c = c = await create(Interpreter)
    out = []
    r = await go(c.run_code('print("hällo 💡"); x = 20\nx + 1', on_stdout=lambda m: out.append(m.line)))
    equal((r.text, "".join(r.logs.stdout), "".join(out), r.execution_count, r.error), ("21", "hällo 💡\n", "hällo 💡\n", 1, None))
    equal((await go(c.run_code('"a" + str(x)'))).text, "a20")
    e = (await go(c.run_code("1/0"))).error
    assert e.name == "ZeroDivisionError" and "1/0" in e.traceback, e
    png = "iVBORw0KGgo="
    r = await go(c.run_code(f"import base64\nclass P:\n    def _repr_png_(self): return base64.b64decode('{png}')\nP()"))
    equal((r.results[0].png, r.results[0].is_main_result), (png, True))
    equal("".join((await go(c.run_code("echo $V", language="bash", envs={"V": "v"}))).logs.stdout), "v\n")
    k = await go(c.create_code_context(language="python", cwd="/tmp"))
    equal((await go(c.run_code("import os; y = 1; os.getcwd()", context=k))).text, "/tmp")
    assert any(x.id == k.id for x in await go(c.list_code_contexts()))
    await go(c.restart_code_context(k))
    equal((await go(c.run_code("y", context=k))).error.name, "NameError")
    await go(c.remove_code_context(k))
    await throws(Exception, lambda: c.run_code("1", context=k))


@check
async def end(t):
    equal((await go(t.s.kill()), await go(t.s.is_running()), await go(t.c.kill())), (True, False, True))
    await throws(SandboxException, lambda: t.s.commands.run("true"))
    equal(await go(Sandbox.list().next_items()), [])


async def main():
    class State:
        pass
    t = State()
    try:
        for f in checks:
            await f(t)
            print("ok", f.__name__, flush=True)
    finally:
        for s in made:
            try:
                await go(s.kill())
            except Exception:
                pass


asyncio.run(main())
surface.end()
