"""Uses sandbar.fathom against a daemon, at first over a proxy that cuts its connections."""

import asyncio
import json
import os
import sys

from sandbar.fathom import Client, FathomError

URL, TOKEN, CUTS = os.environ["FATHOM_URL"], os.environ["FATHOM_TOKEN"], json.loads(os.environ["FATHOM_CUTS"])
checks = 0


def check(ok, *said):
    global checks
    checks += 1
    if not ok:
        print("not ok", *said, flush=True)
        sys.exit(1)


async def fails(awaitable, code, retryable=False):
    try:
        await awaitable
    except FathomError as e:
        check(e.code == code and e.retryable == retryable, code, repr(e), e.retryable)
        return e
    check(False, "no error", code)


async def basics(fathom):
    seen = []
    r = await fathom.execute("shell", "echo $A; cat; echo oops >&2; exit 3", env={"A": "é"}, stdin="in", on_message=lambda m: seen.append(m["type"]))
    check((r.status, r.exit_code, r.stdout, r.stderr, r.acknowledged) == ("failed", 3, "é\nin", "oops\n", True), r)
    check(seen[:2] == ["ack", "status"] and seen[-2:] == ["status", "result"], seen)
    check((await fathom.execute("shell", "sleep 60", timeout=0.3)).status == "timeout")
    e = await fails(fathom.execute("shell", "yes", max_output=1000), "OUTPUT_LIMIT")
    check(len(e.result.stdout) == 1000, e.result)
    await fails(fathom.execute("cobol", ""), "LANGUAGE_NOT_SUPPORTED")
    await fails(fathom.execute("shell", "", memory_mb=1 << 30), "INVALID_REQUEST")
    await fails(fathom.execute("shell", "", id="x" * 257), "INVALID_REQUEST")
    await fails(fathom.execute("shell", "\ud800"), "INVALID_REQUEST")
    await fails(fathom.execute("shell", "x" * (50 << 20)), "INVALID_REQUEST")
    check((await fathom.ping())["queue_depth"] == 0)
    many = await asyncio.gather(*(fathom.execute("shell", f"echo {i}") for i in range(20)))
    check([r.stdout for r in many] == [f"{i}\n" for i in range(20)], many)


async def cancel(fathom):
    started = asyncio.Event()
    task = asyncio.create_task(fathom.execute("shell", "echo up; exec sleep 600", on_message=lambda m: m["type"] == "stdout" and started.set()))
    await started.wait()
    task.cancel()
    try:
        await task
        check(False, "the cancelled task has a result")
    except asyncio.CancelledError:
        pass
    while (await fathom.ping())["active_executions"]:
        await asyncio.sleep(0.02)

    def refuse(message):
        if message["type"] == "stdout":
            raise RuntimeError("full")
    try:
        await fathom.execute("shell", "echo up; exec sleep 600", on_message=refuse)
        check(False, "an error of the receiver is lost")
    except RuntimeError:
        pass


async def cuts():
    right = 0
    for url in CUTS:
        async with Client(url, TOKEN, backoff=0.01) as fathom:
            try:
                r = await fathom.execute("shell", "echo one; echo two >&2; echo three")
                check((r.stdout, r.stderr) == ("one\nthree\n", "two\n"), r)
                right += 1
            except FathomError as e:
                check(e.code == "NETWORK_ERROR" and e.retryable and "one\nthree\n".startswith(e.result.stdout if e.result else ""), e, e.result)
            r = await fathom.execute("shell", "echo one; echo two >&2; echo three", retries=3)
            check((r.stdout, r.stderr) == ("one\nthree\n", "two\n"), r)
    check(0 < right < len(CUTS), right, "of", len(CUTS))


async def redirected():
    seen = []

    async def answer(reader, writer):
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    target = "ws://localhost:%d/" % other.sockets[0].getsockname()[1]
    async with Client("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], TOKEN) as fathom:
        e = await fails(fathom.execute("shell", ""), "INVALID_REQUEST")
        check("302" in e.message and len(seen) == 1 and TOKEN in seen[0], e.message, seen)
    for s in (server, other):
        s.close()
        await s.wait_closed()


async def refused():
    async with Client(URL, "wrong") as fathom:
        e = await fails(fathom.execute("shell", ""), "INVALID_REQUEST")
        check("401" in e.message, e.message)
    async with Client("http://127.0.0.1:1", give_up=0.2) as fathom:
        await fails(fathom.execute("shell", ""), "NETWORK_ERROR", True)
    fathom = Client(URL, TOKEN)
    task = asyncio.create_task(fathom.execute("shell", "exec sleep 600"))
    while not fathom._pending:
        await asyncio.sleep(0.01)
    await fathom.aclose()
    await fails(task, "NETWORK_ERROR", True)
    await fails(fathom.execute("shell", ""), "NETWORK_ERROR", True)
    try:
        Client("ftp://box")
        check(False, "the address is accepted")
    except FathomError as e:
        check(e.code == "INVALID_REQUEST")


async def main():
    async with Client(URL, TOKEN) as fathom:
        await basics(fathom)
        await cancel(fathom)
    await cuts()
    await refused()
    await redirected()
    print("ok", checks)


asyncio.run(main())
