"""A client of the Fathom protocol on the package "websockets". See README.md."""

import asyncio
import json
import os
import re
import sys

import websockets

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
TERMINAL = ["completed", "failed", "timeout", "oom", "cancelled"]
PATIENCE = 240  # seconds that any one execution may take; only a failing check waits so long


class Accumulator:
    """The accumulator of the specification, which also records the order of messages."""

    def __init__(self, execution_id):
        self.execution_id = execution_id
        self.status = None
        self.stdout = ""
        self.stderr = ""
        self.exit_code = None
        self.duration_ms = None
        self.usage = None
        self.errors = []
        self.order = []
        self.ended = asyncio.Event()
        self.ready = asyncio.Event()

    def apply(self, event):
        if self.ended.is_set():
            raise AssertionError(f"{event} came after the last message")
        kind = event["type"]
        if not self.order or self.order[-1] != kind or kind not in ("stdout", "stderr"):
            self.order.append(kind)
        match kind:
            case "ack":
                pass
            case "stdout":
                self.stdout += event["data"]
                self.ready.set()
            case "stderr":
                self.stderr += event["data"]
            case "status":
                self.status = event["status"]
                self.order[-1] = "status:" + self.status
            case "error":
                self.errors.append(event)
                if not self.is_terminal():
                    self.finish()
            case "result":
                self.exit_code = event["exit_code"]
                self.duration_ms = event["duration_ms"]
                self.usage = event["resource_usage"]
                self.finish()
            case _:
                raise AssertionError(f"unknown message type {kind}")

    def finish(self):
        self.ended.set()
        self.ready.set()  # there will be no more

    def is_terminal(self):
        return self.status in TERMINAL


class Client:
    """A connection with many executions."""

    def __init__(self, ws):
        self.ws = ws
        self.executions = {}
        self.others = asyncio.Queue()  # messages that belong to no execution
        self.count = 0
        self.broken = None
        self.reader = asyncio.create_task(self.read())

    async def read(self):
        try:
            async for frame in self.ws:
                assert isinstance(frame, str), "a binary message came"
                event = json.loads(frame)
                assert event["v"] == 1 and TS.fullmatch(event["ts"]), event
                acc = self.executions.get(event.get("id"))
                if acc is None or (acc.ended.is_set() and event["type"] == "error"):
                    await self.others.put(event)
                else:
                    acc.apply(event)
        except Exception as e:  # told by the next check that waits
            self.broken = e
            for acc in self.executions.values():
                acc.finish()

    async def send(self, **message):
        await self.ws.send(json.dumps({"v": 1, "ts": "2025-12-27T11:30:00.000Z", **message}))

    async def start(self, language, code, stdin=None, env=None, **limits):
        self.count += 1
        acc = Accumulator(f"exec_{self.count:08x}")
        self.executions[acc.execution_id] = acc
        limits = {"timeout_ms": 120000, "memory_mb": 256, "cpu_shares": 512, **limits}
        await self.send(type="execute", id=acc.execution_id, language=language, code=code,
                        stdin=stdin, env=env or {}, limits=limits)
        return acc

    async def end(self, acc):
        await asyncio.wait_for(acc.ended.wait(), PATIENCE)
        if self.broken:
            raise self.broken
        return acc

    async def run(self, *args, **kwargs):
        return await self.end(await self.start(*args, **kwargs))

    async def other(self):
        return await asyncio.wait_for(self.others.get(), PATIENCE)


def expect(acc, **want):
    for name, value in want.items():
        got = getattr(acc, name)
        assert got == value, f"{name} is {got!r}, want {value!r}; order {acc.order}, errors {acc.errors}, stderr {acc.stderr!r}"


def begins(acc):
    assert acc.order[:2] == ["ack", "status:running"], f"order {acc.order}"


async def check_hello(c, programs, language):
    acc = await c.run(language, programs[language]["hello"], stdin="world", env={"GREETING": "ça va"})
    expect(acc, status="completed", exit_code=0, stdout="hello, world GREETING=ça va\n", stderr="done\n", errors=[])
    begins(acc)
    assert acc.order[-2:] == ["status:completed", "result"], f"order {acc.order}"
    assert isinstance(acc.duration_ms, int) and acc.duration_ms >= 0
    assert all(isinstance(acc.usage[k], int) for k in ("peak_memory_mb", "cpu_time_ms")), acc.usage


async def check_fail(c, programs, language):
    acc = await c.run(language, programs[language]["fail"])
    expect(acc, status="failed", exit_code=3, errors=[])


async def check_utf8(c, programs, language):
    acc = await c.run(language, programs[language]["utf8"])
    expect(acc, status="completed", exit_code=0, stdout="é€😀")


async def check_cancel(c, programs, language):
    acc = await c.start(language, programs[language]["sleep"])
    await asyncio.wait_for(acc.ready.wait(), PATIENCE)
    await c.send(type="cancel", id=acc.execution_id)
    await c.end(acc)
    expect(acc, status="cancelled", exit_code=None, errors=[])
    begins(acc)
    await c.send(type="cancel", id=acc.execution_id)
    error = await c.other()
    assert error["code"] == "UNKNOWN_EXECUTION" and error["retryable"] is False, error


async def check_timeout(c, programs, language):
    acc = await c.run(language, programs[language]["sleep"], timeout_ms=1500)
    expect(acc, status="timeout", exit_code=None, errors=[])
    assert acc.order[-2:] == ["status:timeout", "result"], f"order {acc.order}"


async def check_output_limit(c, programs, language):
    acc = await c.run(language, programs[language]["flood"], max_output_bytes=100_000)
    expect(acc, status="failed", exit_code=None)
    assert len(acc.stdout) == 100_000, f"{len(acc.stdout)} bytes came"
    assert [e["code"] for e in acc.errors] == ["OUTPUT_LIMIT"] and acc.errors[0]["retryable"] is False, acc.errors
    assert acc.order[-3:] == ["status:failed", "error", "result"], f"order {acc.order}"


async def check_many(c, programs, language):
    code = programs[language]["hello"]
    accs = await asyncio.gather(*(c.run(language, code, stdin=str(i), env={"GREETING": "x"}) for i in range(20)))
    for i, acc in enumerate(accs):
        expect(acc, status="completed", exit_code=0, stdout=f"hello, {i} GREETING=x\n", errors=[])


async def check_refusals(c, programs, language):
    acc = await c.run("cobol", "")
    assert acc.order == ["error"] and acc.errors[0]["code"] == "LANGUAGE_NOT_SUPPORTED", acc.errors
    acc = await c.run(language, "", timeout_ms=-1)
    assert acc.order == ["error"] and acc.errors[0]["code"] == "INVALID_REQUEST", acc.errors
    for frame in ("{", "[]", b"\x00"):
        await c.ws.send(frame)
        error = await c.other()
        assert error["code"] == "INVALID_REQUEST" and "id" not in error, error


async def check_ping(c, programs, language):
    for _ in range(200):  # a sandbox counts until it has been taken down, a little after its result
        await c.send(type="ping")
        pong = await c.other()
        assert pong["type"] == "pong" and "id" not in pong, pong
        if pong["load"] == {"active_executions": 0, "queue_depth": 0}:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the load stays at {pong['load']}")


async def check_version(headers, url):
    async with websockets.connect(url, additional_headers={**headers, "X-Protocol-Version": "1"}) as ws:
        assert ws.response.headers["X-Protocol-Version"] == "1", ws.response.headers
    try:
        async with websockets.connect(url, additional_headers={**headers, "X-Protocol-Version": "2"}):
            raise AssertionError("version 2 was accepted")
    except websockets.InvalidStatus as e:
        assert e.response.status_code == 400 and e.response.headers["X-Protocol-Version"] == "1", e.response


async def main(languages):
    url = os.environ["FATHOM_URL"]
    token = os.environ.get("FATHOM_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with open(os.environ["FATHOM_PROGRAMS"]) as f:
        programs = json.load(f)
    first = languages[0]
    checks = []

    async def check(name, what):
        try:
            await what
            checks.append({"name": name, "ok": True})
        except Exception as e:
            checks.append({"name": name, "ok": False, "detail": f"{type(e).__name__}: {e}"})

    await check("version", check_version(headers, url))
    async with websockets.connect(url, additional_headers=headers, max_size=None) as ws:
        c = Client(ws)
        for language in languages:
            await check(f"hello {language}", check_hello(c, programs, language))
            await check(f"fail {language}", check_fail(c, programs, language))
        for what in (check_utf8, check_cancel, check_timeout, check_output_limit, check_many, check_refusals, check_ping):
            await check(what.__name__.removeprefix("check_"), what(c, programs, first))
    ok = all(c["ok"] for c in checks)
    print(json.dumps({"client": f"websockets {websockets.__version__}", "ok": ok, "checks": checks}))
    return 0 if ok else 1


sys.exit(asyncio.run(main(sys.argv[1:])))
