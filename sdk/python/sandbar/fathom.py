"""A client of the Fathom protocol for asyncio (docs/fathom.md). It needs the package ``websockets``.

>>> from sandbar.fathom import Client
>>> async with Client("http://127.0.0.1:8080", token) as fathom:
...     print((await fathom.execute("python", "print(6 * 7)")).stdout)
42

The client connects at the first use. After a lost connection it connects again: at once, then after
pauses that double up to 30 s. Requests that were not sent wait for the new connection.

An execution whose connection is lost is not continued, because the protocol has no sessions:
``execute`` raises FathomError with the code NETWORK_ERROR and ``retryable``. Whether its program ran
is not known. With ``retries`` the client runs it again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, Optional
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

VERSION = 1
_HEADER = "X-Protocol-Version"
_TERMINAL = ("completed", "failed", "cancelled", "timeout", "oom")


class _Connect(connect):
    """Follows no redirection: the token is for one server."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


class FathomError(Exception):
    """An error of the server, or of the connection with the code NETWORK_ERROR.

    ``retryable`` says whether the same request can succeed later. ``result`` is what had arrived.
    The failure of a program is no error.
    """

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.result: Optional[Result] = None


def _lost(message: str) -> FathomError:
    return FathomError("NETWORK_ERROR", message, True)


@dataclass
class Result:
    """The end of an execution. ``exit_code`` is None if a signal, a limit or a cancellation ended it.

    >>> (await fathom.execute("shell", "exit 3")).exit_code
    3
    """

    id: str
    acknowledged: bool = False
    status: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: Optional[int] = None
    duration_ms: int = 0
    peak_memory_mb: int = 0
    cpu_time_ms: int = 0


class Accumulator:
    """Collects the messages of one execution.

    >>> a = Accumulator("exec_1")
    >>> a.apply({"type": "stdout", "id": "exec_1", "data": "hi"})
    >>> a.result().stdout, a.done
    ('hi', False)
    """

    def __init__(self, id: str) -> None:
        self._result = Result(id)
        self._out: Dict[str, List[str]] = {"stdout": [], "stderr": []}
        self.error: Optional[FathomError] = None
        self.done = False
        #: Bytes of output so far.
        self.size = 0

    def apply(self, message: Mapping[str, Any]) -> None:
        """Add a message. One with another id, of an unknown type or after the last one is ignored."""
        kind = message.get("type")
        if message.get("id") != self._result.id or self.done:
            return
        if kind == "ack":
            self._result.acknowledged = True
        elif kind == "status":
            self._result.status = message["status"]
        elif kind in ("stdout", "stderr"):
            self._out[kind].append(message["data"])
            self.size += len(message["data"].encode())
        elif kind == "error":
            self.error = FathomError(message["code"], message.get("message", ""), bool(message.get("retryable")))
            # After a status, as at the output limit, a result follows.
            self.done = self._result.status not in _TERMINAL
        elif kind == "result":
            usage = message.get("resource_usage") or {}
            self._result.exit_code, self._result.duration_ms = message.get("exit_code"), message.get("duration_ms", 0)
            self._result.peak_memory_mb, self._result.cpu_time_ms = usage.get("peak_memory_mb", 0), usage.get("cpu_time_ms", 0)
            self.done = True

    def result(self) -> Result:
        """Return what has arrived."""
        self._result.stdout, self._result.stderr = "".join(self._out["stdout"]), "".join(self._out["stderr"])
        return self._result


@dataclass(eq=False)
class _Execution:
    """A pending execution."""

    id: str
    most: int
    queue: List[Dict[str, Any]] = field(default_factory=list)
    size: int = 0
    known: bool = False  # the server has answered its message
    error: Optional[FathomError] = None  # no further message arrives
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, message: Dict[str, Any]) -> None:
        self.known = True
        if message.get("type") in ("stdout", "stderr"):
            self.size += len(message["data"].encode())
            if self.size > self.most:
                message["data"] = ""
        self.queue.append(message)
        self.more.set()


class Client:
    """A client of one server, with one connection for many executions at once.

    >>> async with Client() as fathom:
    ...     results = await asyncio.gather(*(fathom.execute("python", f"print({i})") for i in range(3)))
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", token: str = "", max_pending: int = 256, max_message: int = 4 << 20,
                 ping_interval: float = 15, backoff: float = 0.2, max_backoff: float = 30, give_up: float = 60, cancel_wait: float = 10) -> None:
        u = urlsplit(url)
        schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
        if u.scheme not in schemes or not u.netloc:
            raise FathomError("INVALID_REQUEST", "the address is none of http://HOST, https://HOST, ws://HOST and wss://HOST")
        self._url = u._replace(scheme=schemes[u.scheme], path=u.path if u.path.strip("/") else "/ws").geturl()
        self._headers = {_HEADER: str(VERSION), **({"Authorization": "Bearer " + token} if token else {})}
        self._max_message, self._ping_interval = max_message, ping_interval
        self._backoff, self._max_backoff, self._give_up, self._cancel_wait = backoff, max_backoff, give_up, cancel_wait
        self._slots = asyncio.Semaphore(max_pending)
        self._connection: Optional[ClientConnection] = None
        self._refusal: Optional[FathomError] = None
        self._changed = asyncio.Event()
        self._task: Optional[asyncio.Task[None]] = None
        self._closed = False
        self._pending: Dict[str, _Execution] = {}
        self._pongs: List[asyncio.Future[Dict[str, Any]]] = []

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection. Pending executions raise NETWORK_ERROR.

        >>> await fathom.aclose()
        """
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(_lost("the client is closed"))

    async def execute(self, language: str, code: str, *, id: str = "", stdin: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
                      timeout: float = 30, memory_mb: int = 256, cpu_shares: Optional[int] = None, max_output: int = 1 << 20,
                      retries: int = 0, on_message: Optional[Callable[[Dict[str, Any]], None]] = None) -> Result:
        """Run a program to its end. ``on_message`` is called with each message of the execution, in order.

        ``timeout`` is in seconds, ``max_output`` in bytes of both outputs. Cancelling the task cancels the
        program. ``retries`` is how many times the program is run again after a retryable error: one whose
        connection was lost may have run, and had effects outside of its sandbox.

        >>> (await fathom.execute("python", "print(input())", stdin="hello")).stdout
        'hello\\n'
        """
        pause = self._backoff
        for attempt in range(retries + 1):
            try:
                async with self._slots:
                    limits = {"timeout_ms": int(timeout * 1000), "memory_mb": memory_mb, "max_output_bytes": max_output,
                              **({} if cpu_shares is None else {"cpu_shares": cpu_shares})}
                    message = {"v": VERSION, "type": "execute", "id": id or "exec_" + secrets.token_hex(16), "ts": _now(), "language": language,
                               "code": code, "stdin": stdin, "env": dict(env or {}), "limits": limits}
                    return await self._run(message, max_output, on_message)
            except FathomError as e:
                if not e.retryable or attempt == retries or self._closed:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._max_backoff)
        raise AssertionError  # the last attempt returns or raises

    async def _run(self, message: Dict[str, Any], most: int, on_message: Optional[Callable[[Dict[str, Any]], None]]) -> Result:
        try:
            text = json.dumps(message, ensure_ascii=False)
            text.encode()
        except (TypeError, UnicodeEncodeError) as e:
            raise FathomError("INVALID_REQUEST", f"the request cannot be encoded: {e}") from e
        if len(message["id"].encode()) > 256:
            raise FathomError("INVALID_REQUEST", "the id has more than 256 bytes")
        connection = await self._connected()
        if message["id"] in self._pending:
            raise FathomError("INVALID_REQUEST", f"an execution with the id {message['id']!r} is pending")
        x = self._pending[message["id"]] = _Execution(message["id"], most)
        accumulator = Accumulator(x.id)
        try:
            await self._send(connection, text)
            async for m in self._messages(x, accumulator, connection):
                if on_message is not None:
                    on_message(m)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(x, accumulator, connection))
            raise
        except FathomError as e:
            e.result = accumulator.result()
            raise
        except BaseException:  # of on_message
            await self._cancel(x, accumulator, connection)
            raise
        finally:
            if self._pending.get(x.id) is x:
                del self._pending[x.id]
        if accumulator.error is not None:
            accumulator.error.result = accumulator.result()
            raise accumulator.error
        return accumulator.result()

    async def _messages(self, x: _Execution, accumulator: Accumulator, connection: ClientConnection) -> AsyncIterator[Dict[str, Any]]:
        """Apply the messages of an execution to the accumulator, and yield them, until the last one."""
        while True:
            x.more.clear()
            queue, x.queue = x.queue, []
            for m in queue:
                accumulator.apply(m)
                yield m
            if accumulator.done:
                return
            if x.error is not None:
                raise x.error
            if x.size > x.most:
                await self._cancel(x, accumulator, connection)
                raise FathomError("OUTPUT_LIMIT", "the server sent more output than max_output_bytes")
            await x.more.wait()

    async def _cancel(self, x: _Execution, accumulator: Accumulator, connection: ClientConnection) -> None:
        """Cancel an execution and wait for its last message, at most cancel_wait."""
        async def drain() -> None:
            await self._send(connection, json.dumps({"v": VERSION, "type": "cancel", "id": x.id, "ts": _now()}))
            while not accumulator.done and x.error is None:
                x.more.clear()
                queue, x.queue = x.queue, []
                for m in queue:
                    accumulator.apply(m)
                if not accumulator.done and x.error is None:
                    await x.more.wait()
        try:
            await asyncio.wait_for(drain(), self._cancel_wait)
        except asyncio.TimeoutError:
            pass

    async def ping(self) -> Dict[str, int]:
        """Return the load of the server: active_executions and queue_depth.

        >>> (await fathom.ping())["queue_depth"]
        0
        """
        connection = await self._connected()
        pong: asyncio.Future[Dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        await self._send(connection, json.dumps({"v": VERSION, "type": "ping", "ts": _now()}))
        load: Dict[str, int] = (await pong).get("load") or {}
        return load

    async def _send(self, connection: ClientConnection, text: str) -> None:
        try:
            await connection.send(text)
        except ConnectionClosed:
            pass  # the end of the connection is reported to all that is pending

    async def _connected(self) -> ClientConnection:
        """Return the connection. Wait for one, at most give_up."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._give_up
        self._refusal = None
        while True:
            if self._closed:
                raise _lost("the client is closed")
            if self._connection is not None:
                return self._connection
            if self._refusal is not None:
                raise self._refusal
            if self._task is None or self._task.done():
                self._task = loop.create_task(self._serve())
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), end - loop.time())
            except asyncio.TimeoutError:
                raise _lost(f"there was no connection to the server for {self._give_up} s") from None

    async def _serve(self) -> None:
        """Connect, and connect again after a lost connection."""
        loop = asyncio.get_running_loop()
        short = 0  # attempts that failed, and connections that were lost at once, in sequence
        while True:
            if short > 1:
                await asyncio.sleep(min(self._backoff * 2 ** min(short - 2, 30), self._max_backoff))
            began = loop.time()
            why = await self._one()
            if why is not None and not why.retryable:
                self._refusal = why
                self._changed.set()
                return
            short = short + 1 if why is not None or loop.time() - began < 1 else 0

    async def _one(self) -> Optional[FathomError]:
        """Serve one connection to its end. Return the error if there was none."""
        try:
            async with _Connect(self._url, additional_headers=self._headers, max_size=self._max_message, compression=None, proxy=None, max_queue=None,
                               ping_interval=self._ping_interval, ping_timeout=self._ping_interval, close_timeout=1) as connection:
                served = connection.response.headers.get(_HEADER) if connection.response is not None else None
                if served not in (None, str(VERSION)):
                    return FathomError("INVALID_REQUEST", f"the server speaks version {served!r} of the protocol, and this client version {VERSION}")
                self._connection = connection
                self._changed.set()
                why: BaseException = _lost("")
                try:
                    await self._read(connection)
                except (ConnectionClosed, ValueError, KeyError, TypeError, AttributeError) as e:
                    why = e
                finally:
                    self._connection = None
                    closed = getattr(why, "rcvd", None)
                    self._fail(_lost(f"the connection was lost, and whether the program ran is not known: {why}"), closed is not None and closed.code == 1009)
                return None
        except InvalidStatus as e:
            status, body = e.response.status_code, e.response.body or b""
            if status >= 500 or status == 429:
                return _lost(str(e))
            return FathomError("INVALID_REQUEST", f"the server refused the connection with {status}: {body[:300].decode('utf-8', 'replace').strip()}")
        except (OSError, InvalidHandshake, ConnectionClosed, EOFError, asyncio.TimeoutError) as e:
            return _lost(str(e) or type(e).__name__)

    async def _read(self, connection: ClientConnection) -> None:
        async for text in connection:
            message = json.loads(text) if isinstance(text, str) else None
            if not isinstance(message, dict) or message.get("v") != VERSION:
                raise ValueError("the server sent a message that is not one of this version")
            self._dispatch(message)
        raise ValueError("the server has closed the connection")

    def _dispatch(self, message: Dict[str, Any]) -> None:
        if message["type"] == "pong":
            while self._pongs:
                pong = self._pongs.pop(0)
                if not pong.done():
                    pong.set_result(message)
                    return
            return
        x = self._pending.get(message.get("id", ""))
        if "id" not in message and message["type"] == "error":  # the answer to the oldest message without one
            x = next((p for p in self._pending.values() if not p.known), None)
            if x is not None:
                message["id"] = x.id
        if x is not None and message.get("code") != "UNKNOWN_EXECUTION":  # else a cancel has crossed the end
            x.put(message)

    def _fail(self, error: FathomError, too_large: bool = False) -> None:
        """Fail what is pending."""
        for x in self._pending.values():
            x.error = FathomError("INVALID_REQUEST", "the server reads no message as large as this one, or as another one that was sent with it") \
                if too_large and not x.known else FathomError(error.code, error.message, error.retryable)
            x.more.set()
        for pong in self._pongs:
            if not pong.done():
                pong.set_exception(FathomError(error.code, error.message, error.retryable))
        self._pongs.clear()


def _now() -> str:
    """Return the time as messages have it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
