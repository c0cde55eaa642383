"""Sandbar runs untrusted code in sandboxes.

>>> from sandbar import Sandbox
>>> with Sandbox.local() as box:
...     print(box.run_code("6 * 7").text)
42
"""

from ._async import AsyncCommands, AsyncContext, AsyncContexts, AsyncFiles, AsyncProcess, AsyncPty, AsyncSandbox, AsyncWatch
from ._async import events as async_events
from ._errors import (CanceledError, CommandError, ConflictError, DeniedError, ExhaustedError, ExistsError, GoneError, InternalError, InvalidError,
                      NoSpaceError, NotFoundError, SandbarError, TimeoutError, TooLargeError, UnauthenticatedError, UnavailableError, UnsupportedError)
from ._models import CellError, CommandResult, Entry, Event, Execution, FileEvent, Metrics, Output, Preview, Result
from ._sync import Commands, Context, Contexts, Files, Process, Pty, Sandbox, Watch, events

__all__ = [
    "AsyncCommands", "AsyncContext", "AsyncContexts", "AsyncFiles", "AsyncProcess", "AsyncPty", "AsyncSandbox", "AsyncWatch",
    "CanceledError", "CellError", "CommandError", "CommandResult", "Commands", "ConflictError", "Context", "Contexts", "DeniedError", "Entry",
    "Event", "Execution", "ExhaustedError", "ExistsError", "FileEvent", "Files", "GoneError", "InternalError", "InvalidError", "Metrics", "NoSpaceError",
    "NotFoundError", "Output", "Preview", "Process", "Pty", "Result", "SandbarError", "Sandbox", "TimeoutError", "TooLargeError",
    "UnauthenticatedError", "UnavailableError", "UnsupportedError", "Watch", "async_events", "events",
]
