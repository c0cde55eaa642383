"""Connections without HTTP, pauses and threads, for blocking callers."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import Callable, TypeVar

T = TypeVar("T")

sleep = time.sleep
Lock = threading.Lock


def in_thread(f: Callable[[], T]) -> T:
    """Call a function that blocks."""
    return f()


class Connection:
    """A connection to the daemon."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._file = sock.makefile("rb")

    @classmethod
    def open(cls, host: str, port: int, tls: bool) -> "Connection":
        """Connect."""
        sock = socket.create_connection((host, port), 10)
        if tls:
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        sock.settimeout(None)
        return cls(sock)

    def read(self, n: int) -> bytes:
        """Read exactly n bytes."""
        data = self._file.read(n)
        if len(data) < n:
            raise EOFError("the connection broke")
        return data

    def read_head(self) -> bytes:
        """Read the header of a response."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._file.readline()
            if not line:
                raise EOFError("the connection broke")
            head += line
        return head

    def write(self, data: bytes) -> None:
        """Write all bytes."""
        self._socket.sendall(data)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()
