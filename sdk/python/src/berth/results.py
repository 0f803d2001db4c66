"""Results of commands and of code, and pieces of their output."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, cast

from ._wire import decode, parse_time
from .types import Container, Exec, Outcome

__all__ = [
    "Chunk", "CodeError", "CodeFailedError", "CodeResult", "CommandFailedError", "CommandResult", "Output",
    "OutputFile", "Result", "Skill", "SkillVersion", "StoredFile", "container_of",
]


@dataclass(slots=True)
class Chunk:
    """A piece of a command's output."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    """Bytes as the command wrote them. A character of UTF-8 is never divided between two chunks."""
    offset: int
    """Where data begins, in bytes from the start of the stream."""
    lost: int = 0
    """Bytes of the stream that are missing before data, since the daemon no longer keeps them."""

    @property
    def text(self) -> str:
        """Data as text; bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode(errors="replace")


@dataclass(slots=True)
class Output:
    """What a command has written so far."""

    stdout: str
    stderr: str


@dataclass(slots=True)
class OutputFile:
    """A stored file, made of one that was in $OUTPUT_DIR. `client.files.download` gets its content."""

    file_id: str


class CommandFailedError(Exception):
    """A command ended with a return code other than 0; `result` has all of it."""

    def __init__(self, result: CommandResult) -> None:
        self.result = result
        what = f"the command ended with the code {result.return_code}"
        if result.reason != "exit":
            what = f"the command ended by {result.reason}" + (f": {result.message}" if result.message else "")
        last = result.stderr.strip().splitlines()[-1:]
        super().__init__(": ".join([what, *last]))


@dataclass(slots=True)
class CommandResult:
    """A command that has ended."""

    stdout: str
    """Head and tail with a mark between them, if it is longer than max_output_bytes."""
    stderr: str
    return_code: int
    """128 + n for signal n, and -1 if it is unknown."""
    reason: str
    """Why it ended: exit, signal, timeout, out_of_memory, disk_quota, pid_limit, output_limit, killed, canceled,
    expired, stopped, host_restart, lost or not_started."""
    exec: Exec
    """The command as the daemon describes it."""
    message: str = ""
    """One sentence, where the reason does not say everything."""
    error_code: str = ""
    """Set if the command did not run to its end, such as execution_time_exceeded."""
    files: list[OutputFile] = field(default_factory=list["OutputFile"])
    """Stored files made of those in $OUTPUT_DIR, in the order of their paths there."""
    notes: list[str] = field(default_factory=list[str])
    """What else is worth knowing, such as a connection that was refused."""

    @property
    def ok(self) -> bool:
        """Whether it returned 0."""
        return self.reason == "exit" and self.return_code == 0

    def check(self) -> CommandResult:
        """Returns the result.

        Raises:
            CommandFailedError: It did not return 0.
        """
        if not self.ok:
            raise CommandFailedError(self)
        return self


def command_result(answer: dict[str, Any]) -> CommandResult:
    """Makes a CommandResult of an ExecResult of the API."""
    run, result = decode(Exec, answer["exec"]), answer["result"]
    partial: dict[str, Any] = answer.get("partial") or {}
    end = run.end
    return CommandResult(
        stdout=result.get("stdout", partial.get("stdout", "")),
        stderr=result.get("stderr", partial.get("stderr", "")),
        return_code=result.get("return_code", end.return_code if end else -1),
        reason=end.reason if end else "lost", message=(end.message or "") if end else "",
        error_code=result.get("error_code", ""), exec=run,
        files=[OutputFile(f["file_id"]) for f in result.get("content", [])], notes=list(answer.get("notes") or []))


class CodeFailedError(Exception):
    """Code failed; `result` has its output until then, and the traceback in `result.error`."""

    def __init__(self, result: CodeResult) -> None:
        self.result = result
        super().__init__(result.error.traceback or str(result.error) if result.error else "")


@dataclass(slots=True)
class CodeError:
    """How code failed."""

    name: str
    """Of the exception; or why the interpreter ended: exit, signal, timeout, out_of_memory and other reasons."""
    message: str
    traceback: str
    return_code: int | None = None
    """Of an interpreter that ended."""

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(slots=True)
class Result:
    """A value that code gave or displayed, by media type."""

    data: dict[str, Any]
    """By media type: text, JSON of JSON types, and base64 of everything else."""
    main: bool = False
    """It is the value of the last expression."""

    def _text(self, media: str) -> str | None:
        value = self.data.get(media)
        return value if isinstance(value, str) else None

    def _bytes(self, media: str) -> bytes | None:
        value = self._text(media)
        return None if value is None else base64.b64decode(value)

    @property
    def text(self) -> str | None:
        """Plain text."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """HTML."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        """LaTeX."""
        return self._text("text/latex")

    @property
    def svg(self) -> str | None:
        """A picture in SVG."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> bytes | None:
        """A picture in PNG: the content of a file."""
        return self._bytes("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """A picture in JPEG: the content of a file."""
        return self._bytes("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        """A document in PDF: the content of a file."""
        return self._bytes("application/pdf")

    @property
    def json(self) -> Any:
        """A value of JSON."""
        return self.data.get("application/json")

    @property
    def table(self) -> dict[str, Any] | None:
        """A data frame: columns (name, dtype), index, rows (1,000 at most), total_rows, total_columns."""
        return self.data.get("application/vnd.berth.table+json")

    @property
    def chart(self) -> dict[str, Any] | None:
        """A figure as data: type, title, elements, and labels, units, ticks and scales of its axes."""
        return self.data.get("application/vnd.berth.chart+json")

    def __str__(self) -> str:
        return self.text or json.dumps(self.data)


@dataclass(slots=True)
class CodeResult:
    """What code gave. Its properties are those of the value of the last expression, or of the first result that has
    such a form."""

    results: list[Result]
    """What the code displayed and, last, the value of its last expression."""
    stdout: str
    stderr: str
    error: CodeError | None
    """Set if the code failed."""
    outcome: Outcome
    """The whole answer of the daemon, with files, notes, duration_ms and execution_count."""

    def _first(self, form: str) -> Any:
        for r in sorted(self.results, key=lambda r: not r.main):
            value = getattr(r, form)
            if value is not None:
                return value
        return None

    @property
    def text(self) -> str | None:
        """The value of the last expression as text. None: the code ended without one, as with an assignment."""
        return next((r.text for r in self.results if r.main), None)

    @property
    def html(self) -> str | None:
        """HTML of a result."""
        return cast("str | None", self._first("html"))

    @property
    def markdown(self) -> str | None:
        """Markdown of a result."""
        return cast("str | None", self._first("markdown"))

    @property
    def svg(self) -> str | None:
        """A picture in SVG."""
        return cast("str | None", self._first("svg"))

    @property
    def png(self) -> bytes | None:
        """A picture in PNG, such as a figure: the content of a file."""
        return cast("bytes | None", self._first("png"))

    @property
    def jpeg(self) -> bytes | None:
        """A picture in JPEG: the content of a file."""
        return cast("bytes | None", self._first("jpeg"))

    @property
    def json(self) -> Any:
        """A value of JSON."""
        return self._first("json")

    @property
    def table(self) -> dict[str, Any] | None:
        """A data frame: columns (name, dtype), index, rows (1,000 at most), total_rows, total_columns."""
        return cast("dict[str, Any] | None", self._first("table"))

    @property
    def chart(self) -> dict[str, Any] | None:
        """A figure as data: type, title, elements, and labels, units, ticks and scales of its axes."""
        return cast("dict[str, Any] | None", self._first("chart"))

    @property
    def files(self) -> list[OutputFile]:
        """Stored files made of those in $OUTPUT_DIR; of a context, when its interpreter ends."""
        return [OutputFile(f.file_id) for f in self.outcome.files]

    @property
    def ok(self) -> bool:
        """Whether the code did not fail."""
        return self.error is None

    def check(self) -> CodeResult:
        """Returns the result.

        Raises:
            CodeFailedError: The code failed.
        """
        if self.error is not None:
            raise CodeFailedError(self)
        return self


def code_result(answer: dict[str, Any]) -> CodeResult:
    """Makes a CodeResult of an Outcome of the API."""
    out = decode(Outcome, answer)
    results = [Result(r, i == out.main_result) for i, r in enumerate(out.rich)]
    for r, text in zip(results, out.results, strict=False):
        r.data.setdefault("text/plain", text)
    error = None
    if out.error is not None:
        d = out.error_detail
        error = CodeError(d.name, d.message, d.traceback or out.error, d.return_code) if d else CodeError(
            "Error", out.error, out.error)
    return CodeResult(results, "".join(out.logs.stdout), "".join(out.logs.stderr), error, out)


@dataclass(slots=True)
class StoredFile:
    """A file that is stored outside of containers. `files=[its id]` puts it into one."""

    id: str
    filename: str
    mime_type: str
    size_bytes: int
    created_at: datetime
    downloadable: bool
    """The hosted API's field: true for files that code made. Uploads can be downloaded here all the same, unless the
    daemon has `--strict-downloads`."""
    expires_at: datetime | None = None
    """None: it stays until it is deleted."""


def stored_file(answer: dict[str, Any]) -> StoredFile:
    """Makes a StoredFile of a file of the Files API."""
    expires = answer.get("expires_at")
    return StoredFile(
        id=answer["id"], filename=answer["filename"], mime_type=answer["mime_type"],
        size_bytes=int(answer["size_bytes"]), created_at=parse_time(answer["created_at"]),
        downloadable=bool(answer.get("downloadable")), expires_at=parse_time(expires) if expires else None)


@dataclass(slots=True)
class Skill:
    """A directory with a SKILL.md and its files, for containers of Messages requests."""

    id: str
    display_name: str
    source: str
    """custom, or anthropic for one that the daemon provides."""
    latest_version: str
    raw: dict[str, Any]
    """The whole answer."""


@dataclass(slots=True)
class SkillVersion:
    """One version of a skill."""

    id: str
    skill_id: str
    name: str
    description: str
    raw: dict[str, Any]
    """The whole answer."""


def container_of(answer: dict[str, Any]) -> Container:
    """Makes a Container of the API's answer."""
    return decode(Container, answer)
