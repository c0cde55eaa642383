"""Connections without HTTP, pauses and threads, for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from typing import Callable, Optional, TypeVar

T = TypeVar("T")

sleep = asyncio.sleep
Lock = asyncio.Lock


async def in_thread(f: Callable[[], T]) -> T:
    """Call a function that blocks."""
    return await asyncio.to_thread(f)


class Connection:
    """A connection to the daemon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, host: str, port: int, tls: bool) -> "Connection":
        """Connect."""
        context: Optional[ssl.SSLContext] = ssl.create_default_context() if tls else None
        return cls(*await asyncio.open_connection(host, port, ssl=context))

    async def read(self, n: int) -> bytes:
        """Read exactly n bytes."""
        try:
            return await self._reader.readexactly(n)
        except asyncio.IncompleteReadError as e:
            raise EOFError("the connection broke") from e

    async def read_head(self) -> bytes:
        """Read the header of a response."""
        try:
            return await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as e:
            raise EOFError("the connection broke") from e

    async def write(self, data: bytes) -> None:
        """Write all bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def aclose(self) -> None:
        """Close the connection."""
        self._writer.close()
