"""Drives the PyPI package iii-sdk against a server; see README.md."""

import asyncio
import base64
import hashlib
import json
import os
import sys
import traceback

from iii import register_worker
from iii.channels import ChannelReader
from iii.iii_types import StreamChannelRef

try:
    from iii.helpers import create_channel_async
except ImportError:  # before 0.20 channels were made by the client
    async def create_channel_async(client):
        return await client.create_channel_async()

URL = os.environ["III_URL"]
client = register_worker(URL)


async def call(name, payload, timeout_ms=120_000):
    return await client.trigger_async({"function_id": name, "payload": payload, "timeout_ms": timeout_ms})


def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what} is {str(got)[:300]}, want {str(want)[:300]}")


async def fails(code, name, payload):
    try:
        got = await call(name, payload)
    except Exception as e:  # whatever this version calls it
        text = str(e)
        detail = json.loads(text[text.index("{"):])
        equal((detail["code"], e.code), (code, "invocation_failed"), name)
        return detail
    raise AssertionError(f"{name} succeeded: {got}")


async def lifecycle():
    images = (await call("sandbox::catalog::list", {}))["images"]
    equal([i["name"] for i in images[:2]], ["python", "node"])
    made = await call("sandbox::create", {"image": "python", "name": "py"})
    listed = (await call("sandbox::list", {}))["sandboxes"]
    equal([s["name"] for s in listed if s["sandbox_id"] == made["sandbox_id"]], ["py"])
    equal(await call("sandbox::stop", {"sandbox_id": made["sandbox_id"], "wait": True}),
          {"sandbox_id": made["sandbox_id"], "stopped": True})


async def sandbox(f):
    made = await call("sandbox::create", {"image": "python"})
    try:
        await f(made["sandbox_id"])
    finally:
        await call("sandbox::stop", {"sandbox_id": made["sandbox_id"], "wait": True})


async def execute():
    async def f(box):
        for ask in ({"cmd": "echo 'a b' c"}, {"cmd": "echo", "args": ["a b", "c"]}, {"argv": ["echo", "a b", "c"]}):
            r = await call("sandbox::exec", {"sandbox_id": box, **ask})
            equal((r["stdout"], r["exit_code"], r["success"], r["timed_out"]), ("a b c\n", 0, True, False))
        r = await call("sandbox::exec", {"sandbox_id": box, "argv": ["sh", "-c", "cat; echo $X"], "env": {"X": "y"},
                                         "stdin": base64.b64encode(b"in").decode()})
        equal(r["stdout"], "iny\n")
    await sandbox(f)


async def run():
    r = await call("sandbox::run", {"image": "python", "code": "print(6 * 7)", "lang": "python"})
    equal((r["stdout"], r["exit_code"]), ("42\n", 0))


async def files():
    async def f(box):
        async def fs(name, **payload):
            return await call("sandbox::fs::" + name, {"sandbox_id": box, **payload})
        equal(await fs("mkdir", path="/tmp/d"), {"created": True})
        equal((await fs("write", path="/tmp/d/a", content="foo\nbar\n"))["bytes_written"], 8)
        equal((await fs("read", path="/tmp/d/a"))["body"], "foo\nbar\n")
        equal((await fs("stat", path="/tmp/d/a"))["mode"], "0644")
        equal([e["name"] for e in (await fs("ls", path="/tmp/d"))["entries"]], ["a"])
        equal((await fs("grep", path="/tmp/d", pattern="bar"))["matches"], [{"path": "/tmp/d/a", "line": 2, "content": "bar"}])
        equal((await fs("sed", path="/tmp/d", pattern="bar", replacement="baz"))["total_replacements"], 1)
        equal(await fs("chmod", path="/tmp/d/a", mode="0600"), {"updated": 1})
        equal(await fs("mv", src="/tmp/d/a", dst="/tmp/d/b"), {"moved": True})
        equal(await fs("rm", path="/tmp/d", recursive=True), {"removed": True})
    await sandbox(f)


async def channels():
    async def f(box):
        for n in (1, 2**20 - 1, 2**20, 2**20 + 1, 16 * 2**20):
            data = os.urandom(n)
            channel = await create_channel_async(client)
            ref = channel.reader_ref
            writing = asyncio.create_task(write(channel, data))
            r = await call("sandbox::fs::write", {"sandbox_id": box, "path": "/tmp/f",
                                                  "content": ref.model_dump(mode="json") if hasattr(ref, "model_dump") else ref})
            await writing
            equal(r["bytes_written"], n)
            equal(await read(box, "/tmp/f"), hashlib.sha256(data).hexdigest())
        await call("sandbox::fs::write", {"sandbox_id": box, "path": "/tmp/e", "content": ""})
        equal(await read(box, "/tmp/e"), hashlib.sha256(b"").hexdigest())
    await sandbox(f)


async def write(channel, data):
    await channel.writer.write(data)
    await channel.writer.close_async()


async def read(box, path):
    r = await call("sandbox::fs::read", {"sandbox_id": box, "path": path})
    reader = ChannelReader(URL, StreamChannelRef(**r["content"]))
    return hashlib.sha256(await reader.read_all()).hexdigest()


async def errors():
    await fails("S001", "sandbox::exec", {"sandbox_id": "nope", "cmd": "true"})
    await fails("S002", "sandbox::stop", {"sandbox_id": "0" * 32})
    await fails("S100", "sandbox::create", {"image": "nope"})

    async def f(box):
        late = await fails("S200", "sandbox::exec", {"sandbox_id": box, "cmd": "sleep 9", "timeout_ms": 100})
        equal(late["fix"]["timeout_ms"], 1000)
        parent = await fails("S211", "sandbox::fs::write", {"sandbox_id": box, "path": "/tmp/a/b", "content": "x"})
        equal((await call("sandbox::fs::write", parent["fix"]))["bytes_written"], 1)
    await sandbox(f)


async def concurrent():
    async def f(box):
        all = await asyncio.gather(*(call("sandbox::fs::write", {"sandbox_id": box, "path": f"/tmp/{i}", "content": "x" * i}) for i in range(50)))
        equal([r["bytes_written"] for r in all], list(range(50)))
    await sandbox(f)


async def main():
    results = []
    for check in (lifecycle, execute, run, files, channels, errors, concurrent):
        try:
            await asyncio.wait_for(check(), 120)
            results.append({"name": check.__name__, "ok": True, "detail": ""})
        except Exception:
            results.append({"name": check.__name__, "ok": False, "detail": traceback.format_exc()[-2000:]})
    return results


results = asyncio.run(main())
ok = all(r["ok"] for r in results)
print(json.dumps({"client": "PyPI iii-sdk", "ok": ok, "checks": results}), flush=True)
os._exit(0 if ok else 1)  # the SDK's threads need not end in order
