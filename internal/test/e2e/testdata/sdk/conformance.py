"""Does the steps of conformance.json with the Python SDK, sync or async (the first argument).

It prints the outcome of each step as a line of JSON: {"value": …}, {"error": code, "field": …}, or
{"absent": true} if the object of the step was not made.
"""

import asyncio
import http.client
import inspect
import json
import os
import pathlib
import sys
import urllib.parse

from sandbar import AsyncSandbox, Sandbox, SandbarError, async_events, events

STEPS = json.loads(pathlib.Path(os.environ["STEPS"]).read_text())
CLASS = AsyncSandbox if sys.argv[1] == "async" else Sandbox


async def value(v):
    """Return a value of either SDK."""
    return await v if inspect.isawaitable(v) else v


async def each(stream):
    """Iterate over a stream of either SDK."""
    if hasattr(stream, "__aiter__"):
        async for x in stream:
            yield x
    else:
        for x in stream:
            yield x


async def close(x):
    await value(x.aclose() if hasattr(x, "aclose") else x.close())


def described(info):
    return {**{k: info[k] for k in ("name", "state", "labels", "idle_timeout")}, "timeout": info["limits"]["timeout"]}


def execution(e):
    results = [{"text": r.text, "html": r.html, "png": (r.png or b"").hex(), "main": r.main} for r in e.results]
    return {"stdout": e.stdout, "stderr": e.stderr, "text": e.text, "png": (e.png or b"").hex(), "results": results,
            "error": vars(e.error) if e.error else None, "outcome": e.outcome, "lost": e.lost}


class Runner:
    def __init__(self):
        self.objects = {}

    async def step(self, step):
        on = step.get("on", "box")
        if on not in self.objects and step["op"] not in ("create", "connect", "list"):
            return {"absent": True}
        try:
            got = await getattr(self, step["op"].replace(".", "_"))(self.objects.get(on), **step.get("args", {}))
        except SandbarError as e:
            return {"error": e.code, "field": e.field}
        made = isinstance(got, tuple)
        if made and "as" in step:
            self.objects[step["as"]] = got[0]
        return {"value": got[1] if made else got}

    # Each method does one kind of step. It returns the value, or a tuple of an object and the value.

    async def create(self, _, **options):
        box = await value(CLASS.create(**options))
        return box, described(box.info)

    async def connect(self, _, **args):
        box = await value(CLASS.connect(**args))
        return box, described(box.info)

    async def list(self, _, **search):
        return [s["name"] for s in await value(CLASS.list(**search))]

    async def renew(self, box, idle_timeout):
        await value(box.renew(idle_timeout))
        return {"idle_timeout": box.info["idle_timeout"]}

    async def metrics(self, box):
        used = await value(box.metrics())
        return [name for name in ("cpu_time_ms", "memory_bytes", "processes") if getattr(used, name) > 0]

    async def events(self, box, types, after="", until=""):
        seen = []
        stream = each((async_events if CLASS is AsyncSandbox else events)([box.id], types, after))
        async for e in stream:
            seen.append(e)
            if e.type == until:
                break
        await stream.aclose()
        kinds = [e.type for e in seen]
        return {"types": list(dict.fromkeys(kinds)), "reason": seen[-1].reason, "repeated": len(seen) - len({e.id for e in seen}),
                "lost": kinds.count("program.started") - kinds.count("program.ended")}

    async def refresh(self, box):
        return {"state": (await value(box.refresh()))["state"]}

    async def stop(self, box):
        await value(box.stop())

    async def pause(self, box):
        await value(box.pause())
        return {"state": box.info["state"]}

    async def resume(self, box):
        return {"state": (await value(box.resume())).info["state"]}

    async def fork(self, box):
        copies = await value(box.fork())
        return copies[0], [{"state": c.info["state"]} for c in copies]

    async def snapshot(self, box):
        saved = await value(box.snapshot())
        return saved, {"state": saved.info["state"]}

    async def commands_run(self, box, cmd, stdin=None, times=1, **options):
        r = await value(box.commands.run(cmd, stdin=stdin and stdin * times, **options))
        return vars(r)

    async def commands_start(self, box, **args):
        return await value(box.commands.start(**args)), None

    async def commands_list(self, box):
        return [{"status": p["status"], "exit_code": p["exit_code"]} for p in await value(box.commands.list())]

    async def process_output(self, process, id="", follow=True, take=None, last=0):
        out = {"stdout": [], "stderr": [], "lost": 0}
        stream = each((process.commands.process(id) if id else process).output(follow))
        async for line in stream:
            out[line.stream].append(line.text)
            out["lost"] += line.lost
            if take == len(out["stdout"]):
                break
        await stream.aclose()
        return {k: v if k == "lost" else v[-last:] for k, v in out.items()}

    async def process_wait(self, process):
        return await value(process.wait())

    async def process_kill(self, process, id=""):
        await value((process.commands.process(id) if id else process).kill())

    async def files_write(self, box, path, text, times=1, mode=0):
        await value(box.files.write(path, text * times, mode))

    async def files_read(self, box, path, size=False):
        return len(await value(box.files.read(path))) if size else await value(box.files.read_text(path))

    async def files_list(self, box, path):
        return [{"name": e.name, "type": e.type, **({"size": e.size, "mode": e.mode} if e.type == "file" else {})} for e in await value(box.files.list(path))]

    async def files_exists(self, box, path):
        return await value(box.files.exists(path))

    async def files_make_dir(self, box, path):
        await value(box.files.make_dir(path))

    async def files_remove(self, box, path):
        await value(box.files.remove(path))

    async def files_remove_dir(self, box, path):
        await value(box.files.remove_dir(path))

    async def files_watch(self, box, path, recursive=False, until="", then=()):
        changes = await value(box.files.watch(path, recursive))
        for step in then:
            await self.step(step)
        async for event in each(changes):
            if f"{event.op} {event.path}" == until:
                break
        await close(changes)

    async def run_code(self, box, **args):
        return execution(await value(box.run_code(**args)))

    async def contexts_create(self, box, **args):
        context = await value(box.contexts.create(**args))
        return context, {"language": context.language}

    async def contexts_list(self, box):
        return [c.language for c in await value(box.contexts.list())]

    async def contexts_remove_all(self, box):
        for context in await value(box.contexts.list()):
            await value(context.remove())

    async def context_run(self, context, **args):
        return execution(await value(context.run(**args)))

    async def context_stream(self, context, code, interrupt_on=None, leave_on=None):
        kinds, said = [], ""
        events = each(context.stream(code))
        async for event in events:
            if event["type"] not in kinds:
                kinds.append(event["type"])
            said += event.get("text", "")
            if leave_on and leave_on in said:
                break
            if interrupt_on and interrupt_on in said:
                interrupt_on = None
                await value(context.interrupt())
        await events.aclose()
        return kinds

    async def context_restart(self, context):
        await value(context.restart())

    async def context_remove(self, context):
        await value(context.remove())

    async def pty(self, box, args, input="", resize=None, **options):
        terminal = await value(box.pty(*args, **options))
        if resize:
            await value(terminal.resize(*resize))
        await value(terminal.write(input.encode()))
        output = b"".join([data async for data in each(terminal)])
        code = await value(terminal.wait())
        await close(terminal)
        return {"output": output.decode(), "exit_code": code}

    async def expose(self, box, **args):
        preview = await value(box.expose(**args))
        return preview, {"port": preview.port, "public": preview.public}

    async def previews(self, box):
        return [{"port": p.port, "public": p.public} for p in await value(box.previews())]

    async def unexpose(self, box, port):
        await value(box.unexpose(port))

    async def get(self, preview, path):
        # The domain of previews is that of browsers: the request goes to the daemon's address.
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(os.environ["SANDBAR_URL"]).netloc)
        connection.request("GET", path, headers={"Host": urllib.parse.urlsplit(preview.url).netloc})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return {"status": response.status, "body": body}


async def main():
    runner = Runner()
    for step in STEPS:
        print(json.dumps(await runner.step(step)), flush=True)
    for made in runner.objects.values():
        if isinstance(made, CLASS):
            await close(made)


asyncio.run(main())
