"""Drives a server with the package mcp: tools, progress, cancellation and resources.

Prints "ok NAME" for each check, and fails at the first that does not hold. Arguments: "http", or
the command of a server on standard input and output.
"""

import asyncio
import base64
import contextlib
import os
import sys

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@contextlib.asynccontextmanager
async def streams():
    command, *args = sys.argv[1:]
    if command != "http":
        async with stdio_client(StdioServerParameters(command=command, args=args, env=dict(os.environ))) as pair:
            yield pair
        return
    headers = {"Authorization": "Bearer " + os.environ["SANDBAR_TOKEN"]}
    async with httpx2.AsyncClient(headers=headers, timeout=600) as http:
        async with streamable_http_client(os.environ["MCP_URL"], http_client=http) as pair:
            yield pair[0], pair[1]


def equal(got, want):
    assert got == want, f"{got!r:.400} is not {want!r:.400}"


async def main():
    async with streams() as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def call(name, progress=None, **args):
            r = await session.call_tool(name, args, progress_callback=progress)
            assert not r.is_error, f"{name}: {r.content}"
            return r

        async def refused(code, name, **args):
            r = await session.call_tool(name, args)
            equal((r.is_error, r.meta["sandbar/error"]["code"]), (True, code))

        tools = (await session.list_tools()).tools
        equal(len(tools), 15)
        print("ok tools")

        await call("run_code", code="x = 41")
        r = await call("run_code", code="x + 1")
        equal((r.content[0].text, r.structured_content["results"][0]["text"]), ("42\n", "42"))
        r = await call("run_code", code='class V:\n def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n"\nV()')
        equal([(c.mime_type, c.data) for c in r.content if c.type == "image"], [("image/png", "iVBORw0KGgo=")])
        print("ok run_code")

        got = []

        async def progress(_, __, message):
            got.append(message)

        r = await call("run_command", progress=progress, command="echo one; sleep 0.2; echo two; exit 3")
        equal((r.structured_content["exit_code"], "".join(got)[:4]), (3, "one\n"))
        print("ok run_command")

        started = asyncio.Event()

        async def begun(*_):
            started.set()

        running = asyncio.create_task(call("run_command", progress=begun, command="echo started; sleep 987655"))
        await started.wait()
        running.cancel()
        await call("run_command", command='while ps -eo args | grep -q "[s]leep 987655"; do sleep 0.05; done')
        print("ok cancellation")

        r = await call("write_file", path="d/a.txt", content="one\ntwo\n")
        sandbox = r.structured_content["sandbox"]
        await call("edit_file", path="d/a.txt", old="two", new="zwei")
        equal((await call("read_file", path="d/a.txt")).content[0].text, "one\nzwei\n")
        equal((await call("list_files", path="d")).structured_content["entries"][0]["path"], "a.txt")
        equal(len((await call("search_files", pattern="z.ei")).structured_content["matches"]), 1)
        await call("upload", path="b.bin", data=base64.b64encode(b"\0\xff\1").decode())
        equal((await call("download", path="b.bin")).content[0].resource.blob, "AP8B")
        r = await session.read_resource(f"sandbar://{sandbox}/home/user/d/a.txt")
        equal(r.contents[0].text, "one\nzwei\n")
        print("ok files")

        other = (await call("create_sandbox")).structured_content["sandbox"]
        equal(len((await call("list_sandboxes")).structured_content["sandboxes"]), 2)
        await call("expose_port", port=8000, sandbox=other)
        await call("stop_sandbox", sandbox=other)
        if os.environ["SAVES"] == "true":
            saved = (await call("snapshot")).structured_content["snapshot"]
            await call("restore", snapshot=saved)
        else:
            await refused("unsupported", "snapshot")
        print("ok sandboxes")

        await refused("not_found", "read_file", path="none")
        await refused("invalid", "read_file", paht="none")
        print("ok errors")


asyncio.run(main())
