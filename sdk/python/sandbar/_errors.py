"""Errors: one class for each code of the daemon."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Type


class SandbarError(Exception):
    """An error of the platform. ``code`` is one of a closed set, ``fix`` the next step.

    >>> try:
    ...     Sandbox.connect("nobody")
    ... except NotFoundError as e:
    ...     print(e.code, e.fix)
    """

    code = "internal"

    def __init__(self, message: str, fix: str = "", field: str = "", code: str = "") -> None:
        super().__init__(message + (f" ({fix})" if fix else ""))
        self.message = message
        self.fix = fix
        self.field = field
        if code:
            self.code = code


class InvalidError(SandbarError):
    """The request is malformed or out of range. ``field`` names the field."""

    code = "invalid"


class UnauthenticatedError(SandbarError):
    """The token is missing or wrong."""

    code = "unauthenticated"


class DeniedError(SandbarError):
    """The caller may not do this."""

    code = "denied"


class NotFoundError(SandbarError):
    """There is no such sandbox, context, process or file."""

    code = "not_found"


class ExistsError(SandbarError):
    """It exists already."""

    code = "exists"


class ConflictError(SandbarError):
    """The state of the sandbox or file does not allow this."""

    code = "conflict"


class TooLargeError(SandbarError):
    """A size limit is exceeded."""

    code = "too_large"


class UnsupportedError(SandbarError):
    """This host, driver or configuration cannot provide it."""

    code = "unsupported"


class ExhaustedError(SandbarError):
    """The daemon or the sandbox is at capacity. The request had no effect."""

    code = "exhausted"


class NoSpaceError(SandbarError):
    """The disk of the sandbox is full."""

    code = "no_space"


class TimeoutError(SandbarError):  # noqa: A001 - the daemon's code
    """No slot became free in time."""

    code = "timeout"


class CanceledError(SandbarError):
    """The request was cancelled."""

    code = "canceled"


class UnavailableError(SandbarError):
    """The daemon cannot be reached, or shuts down."""

    code = "unavailable"


class GoneError(SandbarError):
    """The sandbox ended during the request."""

    code = "gone"


class InternalError(SandbarError):
    """A bug of Sandbar."""

    code = "internal"


class CommandError(SandbarError):
    """A command with ``check=True`` did not exit with 0. ``result`` has its outputs."""

    code = "command"

    def __init__(self, result: Any) -> None:
        super().__init__(f"the command ended with {result.exit_code}: {result.stderr.strip()[-500:]}")
        self.result = result


CODES: Dict[str, Type[SandbarError]] = {c.code: c for c in SandbarError.__subclasses__() if c is not CommandError}

_STATUSES = {401: "unauthenticated", 403: "denied", 404: "not_found", 409: "conflict", 410: "gone", 413: "too_large",
             421: "denied", 501: "unsupported", 502: "unavailable", 503: "unavailable", 507: "no_space"}


def error_of(detail: Mapping[str, Any]) -> SandbarError:
    """Return the error of the member ``error`` of a body."""
    code = str(detail.get("code", "internal"))
    return CODES.get(code, SandbarError)(str(detail.get("message", "")), str(detail.get("fix", "")), str(detail.get("field", "")), code)


def error_of_body(status: int, body: bytes) -> SandbarError:
    """Return the error of a response that is not 2xx. It reads the forms of the daemon and of executors."""
    value: Any = None
    try:
        value = json.loads(body)
    except ValueError:
        pass
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        return error_of(value["error"])
    code = _STATUSES.get(status, "invalid" if status < 500 else "internal")
    if isinstance(value, dict) and value.get("error"):
        return error_of({"code": value.get("code") or code, "message": value["error"]})
    return error_of({"code": code, "message": f"the daemon answered {status}: {body[:300].decode('utf-8', 'replace').strip()}"})


def unreachable(url: str, cause: Optional[BaseException]) -> UnavailableError:
    """Return the error for a daemon that does not answer."""
    return UnavailableError(f"the daemon at {url} cannot be reached: {cause}", 'start one with "sandbar serve", set SANDBAR_URL, or use local()')
