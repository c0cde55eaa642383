"""Runs conformance.json with the Python SDK, sync or async (the first argument)."""

import asyncio
import json
import os
import pathlib
import sys

from sandbar import AsyncSandbox, CommandError, Sandbox, SandbarError, async_events, events

STEPS = json.loads(pathlib.Path(__file__).with_name("conformance.json").read_text())


async def value(v):
    """Return a value of either SDK."""
    return await v if asyncio.iscoroutine(v) else v


async def items(stream):
    if hasattr(stream, "__aiter__"):
        return [x async for x in stream]
    return list(stream)


async def call(box, name, *args):
    if name == "run":
        r = await value(box.commands.run(*args))
        return [r.stdout, r.stderr, r.exit_code]
    if name == "run_env":
        r = await value(box.commands.run(args[0], env=args[1], cwd=args[2]))
        return [r.stdout, r.stderr, r.exit_code]
    if name == "run_timeout":
        return (await value(box.commands.run(args[0], timeout=args[1]))).exit_code
    if name == "run_check":
        try:
            await value(box.commands.run(args[0], check=True))
        except CommandError as e:
            return e.result.exit_code
    if name == "input":
        return (await value(box.commands.run(args[0], stdin=args[1] * args[2]))).stdout
    if name == "start":
        process = await value(box.commands.start(args[0]))
        lines = await items(process)
        out = [x.text for x in lines if x.stream == "stdout"]
        return [len(out), out[0], out[-1], [x.text for x in lines if x.stream == "stderr"], await value(process.wait())]
    if name == "kill":
        process = await value(box.commands.start(args[0]))
        await value(process.kill())
        p = [p for p in await value(box.commands.list()) if p["id"] == process.id][0]
        return [p["status"], await value(process.wait())]
    if name in ("write", "make_dir", "remove", "remove_dir", "exists"):
        return await value(getattr(box.files, name)(*args))
    if name == "read":
        return await value(box.files.read_text(*args))
    if name == "list":
        return [e.name for e in await value(box.files.list(*args))]
    if name == "code":
        e = await value(box.run_code(args[1], args[0]))
        return [e.stdout, e.text, e.error.name if e.error else ""]
    if name == "png":
        e = await value(box.run_code(args[0]))
        assert e.results[0]._repr_png_() == e.png
        return e.png.hex()
    if name == "contexts":
        return [c.language for c in await value(box.contexts.list())]
    if name == "pty":
        terminal = await value(box.pty("sh"))
        await value(terminal.resize(*args[1:]))
        await value(terminal.write(args[0].encode()))
        try:
            return await value(terminal.wait())
        finally:
            await value(terminal.aclose() if hasattr(terminal, "aclose") else terminal.close())
    if name == "expose":
        return f"{args[0]}-" in (await value(box.expose(*args))).url
    if name == "connect":
        return await value(type(box).connect(*args))
    if name == "events":
        made = await value(type(box).create())
        try:
            for code in range(args[0]):
                await value(made.commands.run(f"exit {code}"))
        finally:
            await value(made.stop())
        stream = (async_events if isinstance(box, AsyncSandbox) else events)([made.id], ["sandbox", "program.ended"] if args[0] > 0 else ["none"], after="oldest")
        seen = []
        while not seen or not isinstance(seen[-1], str) or seen[-1] == "sandbox.created":
            e = await stream.__anext__() if hasattr(stream, "__anext__") else next(stream)
            seen.append({"sandbox.created": e.type, "program.ended": e.exit_code, "sandbox.ended": e.reason}[e.type])
        await value(stream.aclose() if hasattr(stream, "aclose") else stream.close())
        return seen
    if name == "renew":
        await value(box.renew(args[0]))
        return box.info["idle_timeout"]
    if name == "metrics":
        m = await value(box.metrics())
        return m.memory_bytes > 0 and m.processes > 0 and m.cpu_time_ms > 0
    if name == "search":
        made = await value(type(box).create(name="labelled", labels={"kind": "conformance", "n": "1"}))
        try:
            return [s["name"] for s in await value(type(box).list(labels=args[0], state=args[1]))]
        finally:
            await value(made.stop())
    if name == "fork":
        await value(box.commands.run(args[0], check=True))
        copy = (await value(box.fork()))[0]
    if name == "snapshot":
        copy = await value(box.snapshot())
        assert copy.info["state"] == "paused"
        await value(copy.resume())
    try:
        return (await value(copy.commands.run(args[-1]))).stdout
    finally:
        await value(copy.stop())


async def main(kind, skip):
    box = await value((AsyncSandbox if kind == "async" else Sandbox).create(name="conformance"))
    failed = 0
    try:
        for step in STEPS:
            if step.get("needs") in skip:
                continue
            want = step["error"] if "error" in step else step["want"]
            try:
                got = await call(box, step["call"], *step["args"])
                ok = "error" not in step and got == want
            except SandbarError as e:
                got = f"{e.code}: {e}"
                ok = step.get("error") == e.code
            print("ok" if ok else "not ok", step["call"], "" if ok else f"{step['args']}: {got!r}, want {want!r}", flush=True)
            failed += not ok
    finally:
        await value(box.stop())
    return failed


sys.exit(asyncio.run(main(sys.argv[1], os.environ.get("SKIP", "").split())) != 0)
