"""A daemon as a child process, for programs without a running one."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from typing import Mapping, Optional

from ._errors import UnavailableError

_ADDRESS = re.compile(r"address\"?[=:]\"?(http://[^\s\"]+)")


def program() -> str:
    """Return the path of the command: SANDBAR_BIN, the wheel's own, or the one in PATH."""
    own = os.path.join(os.path.dirname(__file__), "bin", "sandbar")
    found = os.environ.get("SANDBAR_BIN") or (own if os.path.exists(own) else shutil.which("sandbar"))
    if not found:
        raise UnavailableError("there is no sandbar command", "install a wheel that has it, or set SANDBAR_BIN to its path")
    return found


class Daemon:
    """A child process that ends with this process, however that ends: it reads a pipe."""

    def __init__(self, settings: Optional[Mapping[str, str]] = None, start_timeout: float = 60) -> None:
        self.token = secrets.token_urlsafe(32)
        self._dir = tempfile.mkdtemp(prefix="sandbar-")
        self._log = os.path.join(self._dir, "log")
        # The daemon refuses variables that are no settings.
        inherited = {k: v for k, v in os.environ.items() if k != "SANDBAR_BIN"}
        env = {**inherited, "SANDBAR_STATE_DIR": os.path.join(self._dir, "state"), "SANDBAR_RUNTIME_DIR": os.path.join(self._dir, "run"),
               **(settings or {}), "SANDBAR_TOKEN": self.token}
        try:
            with open(self._log, "wb") as log:
                self._child = subprocess.Popen([program(), "serve", "--until-eof", "--listen", "127.0.0.1:0"],
                                               stdin=subprocess.PIPE, stdout=log, stderr=log, env=env)
            self.url = self._await(start_timeout)
        except BaseException:
            self.close()
            raise

    def _await(self, timeout: float) -> str:
        end = time.monotonic() + timeout
        while True:
            with open(self._log, errors="replace") as log:
                said = log.read()
            found = _ADDRESS.search(said)
            if found:
                return found.group(1)
            if self._child.poll() is not None or time.monotonic() > end:
                raise UnavailableError(f"the daemon does not start: {said.strip()[-1000:]}", 'see "sandbar doctor"')
            time.sleep(0.005)

    def close(self) -> None:
        """End the daemon and its sandboxes."""
        child = getattr(self, "_child", None)
        if child is not None and child.stdin is not None:
            child.stdin.close()
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self._dir, ignore_errors=True)
