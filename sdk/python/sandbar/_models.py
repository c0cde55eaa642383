"""Values that the API returns."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional


@dataclass(frozen=True)
class CommandResult:
    """The end of a command. ``exit_code`` is -1 without one, and ``error`` then says why."""

    stdout: str
    stderr: str
    exit_code: int
    error: str = ""
    truncated: bool = False


@dataclass(frozen=True)
class Output:
    """A line of output without its line end. ``lost`` lines before it are no longer kept."""

    stream: str
    text: str
    lost: int = 0


@dataclass(frozen=True)
class Entry:
    """An entry of a directory. ``type`` is "file", "directory", "link" or "other"."""

    name: str
    type: str
    size: int
    mode: str
    modified_at: str


@dataclass(frozen=True)
class FileEvent:
    """A change of a file: "create", "write", "remove", "rename", "chmod" or "lost"."""

    op: str
    path: str


@dataclass(frozen=True)
class Preview:
    """A port with a URL of its own."""

    port: int
    public: bool
    url: str


@dataclass(frozen=True)
class Metrics:
    """What a sandbox uses at one moment. A number that the driver or the host does not count is 0."""

    time: str
    cpu_time_ms: float
    memory_bytes: int
    cache_bytes: int
    file_bytes: int
    processes: int


@dataclass(frozen=True)
class Event:
    """Something that happened to a sandbox. ``missed`` of a "gap" is None if the number is unknown."""

    id: str
    type: str
    time: str
    sandbox: str = ""
    client: str = ""
    source: str = ""
    reason: str = ""
    program: str = ""
    context: str = ""
    outcome: str = ""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    failed: bool = False
    action: str = ""
    code: str = ""
    missed: Optional[int] = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Event":
        """Make an event of its JSON. Members that this version does not have are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        return cls(**known, source=data.get("from", ""))


@dataclass(frozen=True)
class CellError:
    """An error that a cell has raised."""

    name: str
    value: str
    traceback: str


@dataclass(frozen=True)
class Result:
    """A rich result: one value in several representations. It shows itself in a notebook.

    >>> box.run_code("6 * 7").results[0].text
    '42'
    """

    data: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text, as print() shows the value."""
        return str(self.data.get("text", ""))

    @property
    def html(self) -> Optional[str]:
        """HTML, such as that of a pandas DataFrame."""
        return self.data.get("html")

    @property
    def png(self) -> Optional[bytes]:
        """The bytes of a PNG image."""
        return self._bytes("png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """The bytes of a JPEG image."""
        return self._bytes("jpeg")

    @property
    def svg(self) -> Optional[str]:
        """An SVG image."""
        return self.data.get("svg")

    @property
    def chart(self) -> Optional[Dict[str, Any]]:
        """The data of a chart."""
        return self.data.get("chart")

    @property
    def main(self) -> bool:
        """Whether this is the value of the last expression."""
        return bool(self.data.get("main"))

    def _bytes(self, name: str) -> Optional[bytes]:
        value = self.data.get(name)
        return base64.b64decode(value) if value else None

    def _repr_html_(self) -> Optional[str]:
        return self.html

    def _repr_png_(self) -> Optional[bytes]:
        return self.png

    def _repr_jpeg_(self) -> Optional[bytes]:
        return self.jpeg

    def _repr_svg_(self) -> Optional[str]:
        return self.svg

    def _repr_markdown_(self) -> Optional[str]:
        return self.data.get("markdown")

    def _repr_latex_(self) -> Optional[str]:
        return self.data.get("latex")

    def __repr__(self) -> str:
        return self.text or f"Result({', '.join(self.data)})"


@dataclass
class Execution:
    """The outputs, results and error of a cell.

    >>> box.run_code("print('hi'); 1 + 1").stdout
    'hi\\n'
    """

    stdout: str = ""
    stderr: str = ""
    results: List[Result] = field(default_factory=list)
    error: Optional[CellError] = None
    outcome: str = ""
    lost: bool = False
    execution_count: int = 0

    @property
    def text(self) -> str:
        """The text of the value of the last expression, or ""."""
        return next((r.text for r in self.results if r.main), "")

    @property
    def output(self) -> str:
        """All text, for a model to read: both outputs, the value and the traceback.

        >>> box.run_code("print('hi'); 1 + 1").output
        'hi\\n2'
        """
        return self.stdout + self.stderr + self.text + (self.error.traceback if self.error else "")

    @property
    def png(self) -> Optional[bytes]:
        """The first image."""
        return next((r.png for r in self.results if r.png), None)

    def raise_error(self) -> "Execution":
        """Raise RuntimeError if the cell has failed; otherwise return this."""
        if self.error:
            raise RuntimeError(f"{self.error.name}: {self.error.value}\n{self.error.traceback}")
        return self

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        bundle: Dict[str, Any] = {"text/plain": self.stdout + self.text + (f"{self.error.name}: {self.error.value}" if self.error else "")}
        for r in self.results:
            for name, mime in (("html", "text/html"), ("png", "image/png"), ("svg", "image/svg+xml"), ("jpeg", "image/jpeg")):
                if r.data.get(name):
                    bundle.setdefault(mime, r.data[name])
        return bundle

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event of a cell."""
        kind = event["type"]
        if kind == "stdout":
            self.stdout += event["text"]
        elif kind == "stderr":
            self.stderr += event["text"]
        elif kind == "result":
            self.results.append(Result({k: v for k, v in event.items() if k != "type"}))
        elif kind == "error":
            self.error = CellError(event.get("name", ""), event.get("value", ""), event.get("traceback", ""))
        elif kind == "end":
            self.outcome, self.lost = event["outcome"], event["lost"]
            self.execution_count = event.get("execution_count", 0)
