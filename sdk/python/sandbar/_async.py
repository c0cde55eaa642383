"""The SDK for asyncio. build.py makes the module _sync of this file."""

from __future__ import annotations

import json
import os
import struct
from typing import IO, Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union
from urllib.parse import quote, urlsplit

import httpx

from ._errors import CommandError, ConflictError, InvalidError, NotFoundError, SandbarError, UnavailableError, error_of, error_of_body, unreachable
from ._local import Daemon
from ._models import CommandResult, Entry, Event, Execution, FileEvent, Metrics, Output, Preview
from ._net_async import Connection, Lock, in_thread, sleep

_S = TypeVar("_S", bound="AsyncSandbox")
_RETRIES = 8  # consecutive failures of a stream without an event between them
_WINDOW = 256 << 10  # bytes of input that the daemon accepts at first
# The reasons of outcomes, as POST …/executor/run words them.
_REASONS = {"exited": "Non-zero exit code", "signaled": "Non-zero exit code", "cancelled": "Non-zero exit code", "oom": "out of memory",
            "output_limit": "output limit exceeded", "timeout": "timed out",
            "lost": "the sandbox was lost while the program ran; how it ended is not known"}
_UNKNOWN = "the connection broke; how the command ended is not known"


class _Api:
    """Requests to one daemon, shared by its sandboxes."""

    def __init__(self, url: Optional[str], token: Optional[str], daemon: Optional[Daemon] = None) -> None:
        self.url = (url or os.environ.get("SANDBAR_URL") or "http://127.0.0.1:8080").rstrip("/")
        self.token = token or os.environ.get("SANDBAR_TOKEN") or _stored_token()
        self.daemon = daemon
        self.users = 0
        self.http = httpx.AsyncClient(headers={"Authorization": "Bearer " + self.token}, timeout=httpx.Timeout(None, connect=10))

    def check(self) -> None:
        if self.http.is_closed:
            raise NotFoundError("the sandbox was stopped, or this object was closed", "connect to a sandbox, or create one", "id")

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        self.check()
        try:
            response = await self.http.request(method, self.url + "/v1" + path, **options)
        except httpx.TransportError as e:
            raise unreachable(self.url, e) from e
        if response.status_code >= 300:
            raise error_of_body(response.status_code, response.content)
        return response

    async def json(self, method: str, path: str, body: Any = None, params: Optional[Mapping[str, Any]] = None) -> Any:
        response = await self.request(method, path, json=body, params=params)
        return response.json() if response.content else None

    async def open(self, method: str, path: str, body: Any = None, params: Optional[Mapping[str, Any]] = None,
                   headers: Optional[Mapping[str, str]] = None) -> httpx.Response:
        """Return a response before its body. The caller must close it."""
        self.check()
        request = self.http.build_request(method, self.url + "/v1" + path, json=body, params=params, headers=headers)
        try:
            response = await self.http.send(request, stream=True)
            if response.status_code >= 300:
                raise error_of_body(response.status_code, await response.aread())
        except httpx.TransportError as e:
            raise unreachable(self.url, e) from e
        return response

    async def lines(self, response: httpx.Response) -> AsyncIterator[str]:
        """Stream the lines of a response, and close it."""
        # Not aiter_lines: it also splits at U+2028 and other characters.
        rest = b""
        try:
            async for data in response.aiter_bytes():
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8", "replace")
        except httpx.TransportError as e:
            raise unreachable(self.url, e) from e
        finally:
            await response.aclose()

    async def events(self, path: str, params: Mapping[str, Any], last: str = "") -> AsyncIterator[Tuple[str, str, str]]:
        """Stream the name, id and data of server-sent events. A broken connection is opened again, after the last event."""
        failures = 0
        while True:
            try:
                name = data = seen = ""
                response = await self.open("GET", path, params=params, headers={"Last-Event-ID": last} if last else None)
                async for line in self.lines(response):
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "id":
                        seen = value
                    elif field == "data":
                        data += value
                    elif line == "":
                        last = seen or last
                        if name or seen:
                            failures = 0
                        if name:
                            yield name, seen, data
                        name = data = seen = ""
                raise UnavailableError("the stream broke")
            except UnavailableError:
                failures += 1
                if failures > _RETRIES:
                    raise
                await sleep(min(0.05 * 2**failures, 5))

    async def release(self) -> None:
        """Close everything after the last sandbox."""
        self.users -= 1
        if self.users <= 0:
            await self.http.aclose()
            if self.daemon is not None:
                await in_thread(self.daemon.close)


def _stored_token() -> str:
    """Return the token that a daemon of this user has stored, or ""."""
    state = os.environ.get("SANDBAR_STATE_DIR") or ("/var/lib/sandbar" if os.name == "posix" and os.geteuid() == 0 else os.path.expanduser("~/.local/state/sandbar"))
    try:
        with open(os.path.join(state, "token")) as f:
            return f.read().strip()
    except OSError:
        return ""


class AsyncSandbox:
    """A sandbox. As a context manager it is removed at the end.

    >>> async with await AsyncSandbox.create() as box:
    ...     print((await box.run_code("6 * 7")).text)
    42
    """

    def __init__(self, api: _Api, info: Dict[str, Any]) -> None:
        self._api = api
        api.users += 1
        self._open = True
        self._default: Dict[str, AsyncContext] = {}
        self._starting = Lock()  # of the contexts in _default
        #: The description of the sandbox at the last request: name, labels, limits, state and others.
        self.info = info
        self.id: str = info["id"]
        self._path = "/sandboxes/" + quote(self.id, safe="")
        self.commands = AsyncCommands(self)
        self.files = AsyncFiles(self)
        self.contexts = AsyncContexts(self)

    @classmethod
    async def create(cls: Type[_S], url: Optional[str] = None, token: Optional[str] = None, **options: Any) -> _S:
        """Create a sandbox. Options are the fields of ``POST /sandboxes``: name, image, env, limits, network and others.

        ``url`` and ``token`` are those of SANDBAR_URL and SANDBAR_TOKEN, or of a daemon of this user.

        >>> box = await AsyncSandbox.create(name="worker", limits={"memory": 256 << 20})
        """
        return await cls._make(_Api(url, token), options)

    @classmethod
    async def local(cls: Type[_S], settings: Optional[Mapping[str, str]] = None, **options: Any) -> _S:
        """Create a sandbox without a running daemon: a child process ends with the sandbox.

        ``settings`` are environment variables of the daemon, such as SANDBAR_DRIVER.

        >>> box = await AsyncSandbox.local(settings={"SANDBAR_DRIVER": "wasm"})
        """
        daemon = await in_thread(lambda: Daemon(settings))
        return await cls._make(_Api(daemon.url, daemon.token, daemon), options)

    @classmethod
    async def _make(cls: Type[_S], api: _Api, options: Mapping[str, Any]) -> _S:
        try:
            return cls(api, await api.json("POST", "/sandboxes", options))
        except BaseException:
            await api.release()
            raise

    @classmethod
    async def connect(cls: Type[_S], id: str, url: Optional[str] = None, token: Optional[str] = None) -> _S:
        """Return an existing sandbox, by its id or name.

        >>> box = await AsyncSandbox.connect("worker")
        """
        api = _Api(url, token)
        try:
            return cls(api, await api.json("GET", "/sandboxes/" + quote(id, safe="")))
        except BaseException:
            await api.release()
            raise

    @classmethod
    async def list(cls, url: Optional[str] = None, token: Optional[str] = None, labels: Union[Mapping[str, str], Sequence[str], None] = None,
                   state: str = "", driver: str = "", name: str = "") -> List[Dict[str, Any]]:
        """Describe the sandboxes that meet all conditions, oldest first.

        ``labels`` are labels with their values, or names of labels with any value.

        >>> [s["name"] for s in await AsyncSandbox.list(labels={"owner": "me"}, state="running")]
        ['worker']
        """
        wanted = [f"{k}={v}" for k, v in labels.items()] if isinstance(labels, Mapping) else [*(labels or [])]
        given = {"state": state, "driver": driver, "name": name}
        params: Dict[str, Any] = {"label": wanted, "limit": "1000", **{k: v for k, v in given.items() if v}}
        api = _Api(url, token)
        found: List[Dict[str, Any]] = []
        try:
            while True:
                page = await api.json("GET", "/sandboxes", params=params)
                found += page["sandboxes"]
                if not page.get("next") or not page["sandboxes"]:
                    return found
                params["after"] = page["next"]
        finally:
            await api.release()

    async def __aenter__(self: _S) -> _S:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Remove the sandbox. It returns when nothing of it is left.

        >>> await box.stop()
        """
        try:
            await self._api.request("DELETE", self._path)
        except NotFoundError:
            pass
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. A sandbox of a running daemon stays.

        >>> await box.aclose()
        """
        if self._open:
            self._open = False
            await self._api.release()

    async def refresh(self) -> Dict[str, Any]:
        """Describe the sandbox as it is now, also in ``info``.

        >>> (await box.refresh())["state"]
        'running'
        """
        self.info = await self._api.json("GET", self._path)
        return self.info

    async def run_code(self, code: str, language: str = "python", env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> Execution:
        """Run code in the sandbox's context of a language. Variables stay from call to call.

        >>> await box.run_code("x = 20")
        >>> (await box.run_code("x + 1")).text
        '21'
        """
        while True:
            async with self._starting:
                context = self._default.get(language)
                kept = context is not None
                if context is None:
                    context = self._default[language] = await self.contexts.create(language)
            try:
                return await context.run(code, env, timeout)
            except NotFoundError:  # the context was removed, or ended with a pause
                if not kept:
                    raise
                if self._default.get(language) is context:
                    del self._default[language]

    async def expose(self, port: int, public: bool = False) -> Preview:
        """Give a port a URL for browsers. It has a token unless ``public`` is set.

        >>> (await box.expose(8000)).url
        """
        return Preview(**await self._api.json("POST", self._path + "/previews", {"port": port, "public": public}))

    async def previews(self) -> List[Preview]:
        """Return the ports that have a URL, sorted by port.

        >>> [p.port for p in await box.previews()]
        [8000]
        """
        return [Preview(**p) for p in (await self._api.json("GET", self._path + "/previews"))["previews"]]

    async def unexpose(self, port: int) -> None:
        """Make the URL of a port invalid.

        >>> await box.unexpose(8000)
        """
        await self._api.request("DELETE", f"{self._path}/previews/{port}")

    async def renew(self, idle_timeout: Optional[float] = None) -> None:
        """Count as a use of the sandbox. ``idle_timeout``, in seconds, replaces that of the sandbox.

        ``info["expires_at"]`` is the end of the operator's max_lifetime, which nothing extends.

        >>> await box.renew(idle_timeout=300)
        """
        self.info = await self._api.json("POST", self._path + "/renew", {} if idle_timeout is None else {"idle_timeout": idle_timeout})

    async def metrics(self) -> Metrics:
        """Measure what the sandbox uses. This does not count as use.

        >>> (await box.metrics()).memory_bytes
        """
        m = await self._api.json("GET", self._path + "/metrics")
        return Metrics(m["time"], m["cpu_time_ms"], m["memory_bytes"], m["cache_bytes"], m["file_bytes"], m["processes"])

    async def pause(self) -> None:
        """Save the sandbox on the daemon's disk and stop it.

        >>> await box.pause()
        """
        self.info = await self._api.json("POST", self._path + "/pause")

    async def resume(self: _S) -> _S:
        """Continue the sandbox after pause() or snapshot().

        >>> await box.resume()
        """
        self.info = await self._api.json("POST", self._path + "/resume")
        return self

    async def fork(self: _S, count: int = 1) -> List[_S]:
        """Make copies of the running sandbox.

        >>> copies = await box.fork(2)
        """
        made = (await self._api.json("POST", self._path + "/fork", {"count": count}))["sandboxes"]
        return [type(self)(self._api, s) for s in made]

    async def snapshot(self: _S) -> _S:
        """Make a copy on the daemon's disk. resume() of the copy continues it.

        >>> saved = await box.snapshot()
        """
        copy = (await self.fork())[0]
        try:
            await copy.pause()
        except BaseException:
            await copy.stop()
            raise
        return copy

    async def pty(self, *args: str, rows: int = 24, cols: int = 80, env: Optional[Mapping[str, str]] = None, dir: str = "") -> "AsyncPty":
        """Start a program with a terminal; without arguments it is a shell.

        >>> async with await box.pty("sh") as terminal:
        ...     await terminal.write(b"exit\\n")
        ...     await terminal.wait()
        """
        request = {"args": list(args) or ["sh"], "env": dict(env or {}), "dir": dir, "stdin": True, "terminal": {"rows": rows, "cols": cols}}
        return AsyncPty(await _Frames.start(self, request))


async def events(sandboxes: Sequence[str] = (), types: Sequence[str] = (), after: str = "", url: Optional[str] = None,
                 token: Optional[str] = None) -> AsyncIterator[Event]:
    """Stream what happens to sandboxes (docs/events.md), from now on or after the event with the id ``after``.

    ``sandboxes`` are ids or names, ``types`` types or their first words. A broken connection is opened
    again, without loss or repetition. An event of the type "gap" stands for events that the daemon no
    longer keeps.

    >>> async for event in events(types=["sandbox"]):
    ...     print(event.type, event.sandbox, event.reason)
    """
    api = _Api(url, token)
    params: Dict[str, Any] = {"sandbox": [*sandboxes], "type": [*types]}
    if after:
        params["after"] = after
    try:
        async for _, _, data in api.events("/events", params):
            yield Event.of(json.loads(data))
    finally:
        await api.release()


class AsyncCommands:
    """Shell commands of a sandbox."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox
        self._api, self._path = sandbox._api, sandbox._path + "/executor"

    async def run(self, cmd: str, stdin: Union[bytes, str, None] = None, env: Optional[Mapping[str, str]] = None, cwd: str = "",
                  timeout: Optional[float] = None, check: bool = False) -> CommandResult:
        """Run a shell command to its end. With ``check`` an exit code other than 0 raises CommandError.

        >>> (await box.commands.run("echo hello")).stdout
        'hello\\n'
        """
        if stdin is not None:
            result = await self._run_with(stdin, cmd, env, cwd, timeout)
        else:
            body: Dict[str, Any] = {"cmd": cmd, "env": dict(env or {})}
            if cwd:
                body["cwd"] = cwd
            if timeout is not None:
                body["timeout"] = timeout
            r = await self._api.json("POST", self._path + "/run", body)
            result = CommandResult(r["stdout"], r["stderr"], r["code"], r.get("error", ""), r.get("truncated", False))
        if check and result.exit_code != 0:
            raise CommandError(result)
        return result

    async def _run_with(self, stdin: Union[bytes, str], cmd: str, env: Optional[Mapping[str, str]], cwd: str, timeout: Optional[float]) -> CommandResult:
        request: Dict[str, Any] = {"args": ["sh", "-c", cmd], "env": dict(env or {}), "dir": cwd, "stdin": True}
        if timeout is not None:
            request["timeout"] = timeout
        frames = await _Frames.start(self._sandbox, request)
        try:
            await frames.send_input(stdin.encode() if isinstance(stdin, str) else stdin)
            await frames.end_input()
            outputs = {"o": b"", "e": b""}
            while not frames.over:
                kind, data = await frames.next()
                if kind in outputs:
                    outputs[kind] += data
        finally:
            await frames.aclose()
        end = frames.result or {}
        code = end["exit_code"] if end["exit_code"] is not None else -1
        reason = _REASONS.get(end["outcome"], end["outcome"]) if code else ""
        if end["outcome"] == "timeout" and timeout:
            reason += f" after {timeout:g}s"
        return CommandResult(outputs["o"].decode("utf-8", "replace"), outputs["e"].decode("utf-8", "replace"), code, reason, end["truncated"])

    async def start(self, cmd: str, env: Optional[Mapping[str, str]] = None, cwd: str = "") -> "AsyncProcess":
        """Start a shell command in the background. Iterate over its output, or wait for its end.

        >>> async for line in await box.commands.start("seq 3"):
        ...     print(line.stream, line.text)
        """
        body: Dict[str, Any] = {"cmd": cmd, "env": dict(env or {})}
        if cwd:
            body["cwd"] = cwd
        p = await self._api.json("POST", self._path + "/start_process", body)
        return AsyncProcess(self, p["id"], p["pid"])

    async def list(self) -> List[Dict[str, Any]]:
        """Describe the background processes, in the order of their start.

        >>> [p["status"] for p in await box.commands.list()]
        ['completed']
        """
        found: List[Dict[str, Any]] = (await self._api.json("GET", self._path + "/list_processes"))["processes"]
        return found

    def process(self, id: str) -> "AsyncProcess":
        """Return a background process by its id.

        >>> process = box.commands.process(id)
        """
        return AsyncProcess(self, id, 0)


class AsyncProcess:
    """A background process. Iteration yields its output from the beginning, and reconnects by offset.

    >>> process = await box.commands.start("python3 -m http.server 8000")
    >>> await process.kill()
    """

    def __init__(self, commands: AsyncCommands, id: str, pid: int) -> None:
        self._commands = commands
        self.id = id
        self.pid = pid

    def __aiter__(self) -> AsyncIterator[Output]:
        return self.output()

    async def output(self, follow: bool = True) -> AsyncIterator[Output]:
        """Stream the output until the process's end, or without ``follow`` until now.

        A broken connection is opened again, and continues after the last line without loss or
        repetition.

        >>> [line.text async for line in process.output(follow=False)]
        """
        params = {"id": self.id, "follow": "true" if follow else "false"}
        lost = 0
        async for name, _, data in self._commands._api.events(self._commands._path + "/process_logs_streaming", params):
            if name == "complete":
                return
            event = json.loads(data)
            if name == "error":
                raise NotFoundError(event["error"])
            if name == "gap":
                lost += event["lost"]
            elif name == "log":
                yield Output(event["stream"], event["data"], lost)
                lost = 0

    async def wait(self) -> int:
        """Wait for the end and return the exit code; -1 without one.

        >>> await process.wait()
        0
        """
        async for _ in self:
            pass
        for p in await self._commands.list():
            if p["id"] == self.id and "exit_code" in p:
                return int(p["exit_code"])
        raise NotFoundError("the process is no longer remembered", field="id")

    async def kill(self) -> None:
        """Kill the process and all that it started. One that has ended raises ConflictError.

        >>> await process.kill()
        """
        try:
            await self._commands._api.json("POST", self._commands._path + "/kill_process", {"id": self.id})
        except InvalidError as e:
            # The executor's protocol has one status for both errors.
            raise (NotFoundError if str(e).startswith("process not found") else ConflictError)(str(e)) from None


class AsyncFiles:
    """Files of a sandbox. Relative paths begin at /home/user."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._api, self._path = sandbox._api, sandbox._path

    async def read(self, path: str) -> bytes:
        """Read a file.

        >>> await box.files.read("data.bin")
        """
        return (await self._api.request("GET", self._path + "/executor/files", params={"path": path})).content

    async def read_text(self, path: str) -> str:
        """Read a text file.

        >>> await box.files.read_text("notes.txt")
        """
        return (await self.read(path)).decode()

    async def write(self, path: str, data: Union[bytes, str, IO[bytes]], mode: int = 0) -> None:
        """Make or replace a file, in one step, with its parent directories.

        >>> await box.files.write("data.csv", "a,b\\n1,2\\n")
        """
        params = {"path": path, "parents": "true"}
        if mode:
            params["mode"] = f"{mode:o}"
        content = data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else data.read()
        await self._api.request("PUT", self._path + "/executor/files", params=params, content=content)

    async def list(self, path: str = ".") -> List[Entry]:
        """List a directory, sorted by name.

        >>> [e.name for e in await box.files.list("/home/user")]
        """
        found: List[Entry] = []
        while True:
            page = await self._api.json("GET", self._path + "/dir", params={"path": path, "after": found[-1].name if found else ""})
            found += [Entry(**e) for e in page["entries"]]
            if not page["more"] or not page["entries"]:
                return found

    async def exists(self, path: str) -> bool:
        """Report whether a file or directory exists.

        >>> await box.files.exists("data.csv")
        """
        try:
            await self._api.request("HEAD", self._path + "/executor/files", params={"path": path})
        except NotFoundError:
            return False
        except ConflictError:  # a directory
            pass
        return True

    async def make_dir(self, path: str) -> None:
        """Make a directory and its parents.

        >>> await box.files.make_dir("a/b")
        """
        await self._change("make_dir", path)

    async def remove(self, path: str) -> None:
        """Remove a file.

        >>> await box.files.remove("data.csv")
        """
        await self._change("delete_file", path)

    async def remove_dir(self, path: str) -> None:
        """Remove a directory with its contents.

        >>> await box.files.remove_dir("a")
        """
        await self._change("delete_dir", path)

    async def _change(self, what: str, path: str) -> None:
        done = await self._api.json("POST", f"{self._path}/executor/{what}", {"path": path})
        if done.get("error"):
            raise error_of({"code": "not_found" if "no such file" in done["error"].lower() else "conflict", "message": done["error"]})

    async def watch(self, path: str = ".", recursive: bool = False) -> "AsyncWatch":
        """Watch a directory, with ``recursive`` also those below it. No change after the return is missed.

        >>> async with await box.files.watch("src", recursive=True) as changes:
        ...     async for event in changes:
        ...         print(event.op, event.path)
        """
        params = {"path": path, "recursive": "true" if recursive else "false"}
        return AsyncWatch(self._api, await self._api.open("GET", self._path + "/watch", params=params))


class AsyncWatch:
    """A watch of a directory. Iteration yields changes until the directory is gone."""

    def __init__(self, api: _Api, response: httpx.Response) -> None:
        self._response = response
        self._lines = api.lines(response)

    def __aiter__(self) -> "AsyncWatch":
        return self

    async def __anext__(self) -> FileEvent:
        event = json.loads(await self._lines.__anext__())
        if "error" in event:
            raise error_of(event["error"])
        return FileEvent(event["op"], event["path"])

    async def aclose(self) -> None:
        """End the watch.

        >>> await changes.aclose()
        """
        await self._response.aclose()

    async def __aenter__(self) -> "AsyncWatch":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncContexts:
    """Interpreters of a sandbox, which run one cell after another."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._api, self._path = sandbox._api, sandbox._path + "/contexts"

    async def create(self, language: str = "python", dir: str = "", env: Optional[Mapping[str, str]] = None) -> "AsyncContext":
        """Start an interpreter: python, javascript, typescript or bash.

        >>> context = await box.contexts.create("javascript")
        """
        info = await self._api.json("POST", self._path, {"language": language, "dir": dir, "env": dict(env or {})})
        return AsyncContext(self._api, self._path, info)

    async def list(self) -> List["AsyncContext"]:
        """Return all contexts, in the order of their creation.

        >>> [c.language for c in await box.contexts.list()]
        ['python']
        """
        return [AsyncContext(self._api, self._path, c) for c in (await self._api.json("GET", self._path))["contexts"]]


class AsyncContext:
    """An interpreter. Its variables stay from cell to cell.

    >>> context = await box.contexts.create("bash")
    >>> (await context.run("cd /tmp; pwd")).stdout
    '/tmp\\n'
    """

    def __init__(self, api: _Api, path: str, info: Mapping[str, Any]) -> None:
        self._api = api
        self.id: str = info["id"]
        self.language: str = info["language"]
        self._path = path + "/" + quote(self.id, safe="")

    async def run(self, code: str, env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> Execution:
        """Run a cell to its end.

        >>> (await context.run("6 * 7")).text
        '42'
        """
        execution = Execution()
        async for event in self.stream(code, env, timeout):
            execution.add(event)
        return execution

    async def stream(self, code: str, env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None) -> AsyncIterator[Dict[str, Any]]:
        """Run a cell and stream its events (docs/contexts.md). Leaving the loop interrupts the cell.

        >>> async for event in context.stream("print(1)"):
        ...     print(event["type"])
        """
        body: Dict[str, Any] = {"code": code, "env": dict(env or {})}
        if timeout is not None:
            body["timeout"] = timeout
        async for line in self._api.lines(await self._api.open("POST", self._path + "/run", body)):
            event = json.loads(line)
            if event["type"] == "failed":
                raise error_of(event["failure"])
            if event["type"] != "keepalive":
                yield event
            if event["type"] == "end":
                return
        raise UnavailableError("the connection broke; how the cell ended is not known")

    async def interrupt(self) -> None:
        """Interrupt the running cell; the variables stay.

        >>> await context.interrupt()
        """
        await self._api.json("POST", self._path + "/interrupt")

    async def restart(self) -> None:
        """Start the interpreter again; its variables are lost.

        >>> await context.restart()
        """
        await self._api.json("POST", self._path + "/restart")

    async def remove(self) -> None:
        """End the interpreter.

        >>> await context.remove()
        """
        await self._api.request("DELETE", self._path)


class _Frames:
    """A command on an upgraded connection (client/wire/frame.go)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._credit = _WINDOW
        self._ahead: List[Tuple[str, bytes]] = []
        self.result: Optional[Dict[str, Any]] = None

    @classmethod
    async def start(cls, sandbox: AsyncSandbox, request: Mapping[str, Any]) -> "_Frames":
        api = sandbox._api
        u = urlsplit(api.url)
        try:
            connection = await Connection.open(u.hostname or "", u.port or (443 if u.scheme == "https" else 80), u.scheme == "https")
        except OSError as e:
            raise unreachable(api.url, e) from e
        frames = cls(connection)
        try:
            head = (f"GET /v1{sandbox._path}/exec HTTP/1.1\r\nHost: {u.netloc}\r\nAuthorization: Bearer {api.token}\r\n"
                    "Connection: Upgrade\r\nUpgrade: sandbar-exec\r\n\r\n")
            await connection.write(head.encode())
            answer = (await connection.read_head()).decode("latin-1")
            status = int(answer.split(" ", 2)[1])
            if status != 101:
                size = next((int(h.split(":")[1]) for h in answer.split("\r\n") if h.lower().startswith("content-length:")), 0)
                raise error_of_body(status, await connection.read(size))
            await frames._send("r", json.dumps(request).encode())
            return frames
        except BaseException as e:
            await connection.aclose()
            if isinstance(e, (OSError, EOFError)):
                raise UnavailableError(_UNKNOWN) from e
            raise

    async def _send(self, kind: str, data: bytes) -> None:
        try:
            await self._connection.write(kind.encode() + struct.pack(">I", len(data)) + data)
        except OSError:
            pass  # the command has ended, or next() reports the broken connection

    @property
    def over(self) -> bool:
        """Whether next() has returned everything."""
        return self.result is not None and not self._ahead

    async def send_input(self, data: bytes) -> None:
        """Send input within the daemon's credit. Output that arrives meanwhile is kept."""
        while data and self.result is None:
            if self._credit == 0:
                self._ahead.append(await self._read())
                continue
            n = min(self._credit, len(data), 64 << 10)
            self._credit -= n
            await self._send("i", data[:n])
            data = data[n:]

    async def end_input(self) -> None:
        await self._send("i", b"")

    async def resize(self, rows: int, cols: int) -> None:
        await self._send("z", struct.pack(">HH", rows, cols))

    async def next(self) -> Tuple[str, bytes]:
        """Return the next frame; its kind is "o" or "e" for output, and "x" for the end."""
        return self._ahead.pop(0) if self._ahead else await self._read()

    async def _read(self) -> Tuple[str, bytes]:
        try:
            kind, size = struct.unpack(">cI", await self._connection.read(5))
            data = await self._connection.read(size)
        except (OSError, EOFError) as e:
            raise UnavailableError(_UNKNOWN) from e
        name: str = kind.decode("latin-1")
        if name == "w":
            self._credit += struct.unpack(">I", data)[0]
        elif name == "x":
            self.result = json.loads(data)
        elif name == "f":
            raise error_of(json.loads(data)["error"])
        return name, data

    async def aclose(self) -> None:
        await self._connection.aclose()


class AsyncPty:
    """A program with a terminal. Iteration yields its output as bytes. Closing it ends the program."""

    def __init__(self, frames: _Frames) -> None:
        self._frames = frames

    async def write(self, data: bytes) -> None:
        """Type.

        >>> await terminal.write(b"ls\\n")
        """
        await self._frames.send_input(data)

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size.

        >>> await terminal.resize(40, 120)
        """
        await self._frames.resize(rows, cols)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._frames.over:
            kind, data = await self._frames.next()
            if kind == "o":
                yield data

    async def wait(self) -> int:
        """Wait for the end and return the exit code; -1 without one.

        >>> await terminal.wait()
        0
        """
        async for _ in self:
            pass
        code = (self._frames.result or {}).get("exit_code")
        return -1 if code is None else int(code)

    async def aclose(self) -> None:
        """Close the terminal.

        >>> await terminal.aclose()
        """
        await self._frames.aclose()

    async def __aenter__(self) -> "AsyncPty":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
