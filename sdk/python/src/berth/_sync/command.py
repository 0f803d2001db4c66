# Made by dev/make_sync.py of ../_async/command.py; do not edit.
"""Commands that run in the background, and terminals."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Callable
from contextlib import closing
from typing import Any

from .._config import path
from .._wire import decode
from ..errors import BerthError
from ..results import Chunk, CommandResult, Output, command_result
from ..types import Exec
from . import _io
from ._follow import Follower
from ._transport import Transport, Request

POLL = 30  # seconds that one request waits for the end of a command; proxies end requests that are silent for longer


class Command:
    """A command of a container. It goes on when this process ends, and when the daemon restarts.

    Iterating gives its output as it comes, from its beginning, as `Chunk`s; a broken connection is resumed.
    """

    def __init__(self, transport: Transport, container: str, exec: Exec) -> None:
        self._transport = transport
        self._container = container
        self.exec = exec
        """The command as the daemon described it last; see refresh."""

    @property
    def id(self) -> str:
        """The command's ID."""
        return self.exec.id

    @property
    def pid(self) -> int | None:
        """Its process ID inside the container."""
        return self.exec.pid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _path(self, *rest: str) -> str:
        return path("containers", self._container, "execs", self.id, *rest)

    def refresh(self) -> Exec:
        """Asks the daemon how the command is."""
        self.exec = decode(Exec, self._transport.get(self._path()))
        return self.exec

    def wait(self, timeout: float | None = None, *, on_stdout: Callable[[str], Any] | None = None,
                   on_stderr: Callable[[str], Any] | None = None) -> CommandResult:
        """Waits for the command's end.

        Args:
            timeout: Seconds to wait; None waits without a limit. The command goes on.
            on_stdout: Called with its output from the beginning, piece by piece. Excludes timeout.
            on_stderr: The same for its standard error.

        Raises:
            TimeoutError: The command still runs.
        """
        if on_stdout or on_stderr:
            follower = Follower(self._transport, self._container, exec_id=self.id)
            return deliver(follower, on_stdout, on_stderr)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL if end is None else max(0.0, min(POLL, end - time.monotonic()))
            status, answer = self._transport.call_with_status(Request(
                "GET", self._path("result"), {"wait_seconds": -int(-left // 1) if left else None},
                timeout=self._transport.timeout + left))
            if status == 200:
                return command_result(answer)
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"command {self.id} still runs after {timeout:g} seconds")

    def stream(self) -> Generator[Chunk, None, None]:
        """Gives the output from its beginning on as it comes, until the command has ended."""
        follower = Follower(self._transport, self._container, exec_id=self.id)
        with closing(follower.chunks()) as chunks:
            for chunk in chunks:
                if chunk is not None:
                    yield chunk

    def __iter__(self) -> Iterator[Chunk]:
        return self.stream()

    def output(self) -> Output:
        """Returns what the command has written so far; head and tail, if that is more than max_output_bytes."""
        out: list[str] = []
        for stream in ("stdout", "stderr"):
            request = Request("GET", self._path("logs"), {"stream": stream})
            with self._transport.stream(request) as body:
                out.append(b"".join([piece for piece in body]).decode(errors="replace"))
        return Output(*out)

    def stdin(self, data: str | bytes = b"", *, close: bool = False) -> None:
        """Writes to the standard input of a command that was started with open_stdin. It returns when the command has
        read it.

        Args:
            data: What to write; a text as UTF-8.
            close: Close the standard input afterwards.
        """
        content = data.encode() if isinstance(data, str) else data
        self._transport.call(Request(
            "POST", self._path("stdin"), {"close": close}, content=content,
            headers={"Content-Type": "application/octet-stream"}, timeout=86400))

    def signal(self, name: str) -> None:
        """Sends a signal, such as SIGINT."""
        self._transport.post(self._path("signal"), {"signal": name}, repeat=name in ("SIGKILL", "SIGTERM"))

    def kill(self, signal: str = "SIGKILL") -> None:
        """Ends the command, with all processes that it started."""
        self.signal(signal)

    def resize(self, rows: int, cols: int) -> None:
        """Sets the size of the command's terminal, in characters."""
        self._transport.post(self._path("resize"), {"rows": rows, "cols": cols}, repeat=True)


class Pty(Command):
    """A program on a terminal. It ends with this object, or 10 seconds after its connection broke for good.

    Iterating gives what it writes, as bytes. The end of a `with` block ends it.
    """

    def __init__(self, transport: Transport, container: str, follower: Follower,
                 chunks: Generator[Chunk | None, None, None]) -> None:
        exec = follower.exec if follower.exec is not None else (follower.result or {})["exec"]
        super().__init__(transport, container, decode(Exec, exec))
        self._follower = follower
        self._chunks = chunks

    def __enter__(self) -> Pty:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def send(self, data: str | bytes) -> None:
        """Types. A line ends with a carriage return or a newline."""
        self.stdin(data)

    def read(self) -> bytes:
        """Returns the next piece of output; b"" when the program has ended."""
        for chunk in self._chunks:
            if chunk is not None and chunk.data:
                return chunk.data
        return b""

    def read_until(self, text: str | bytes) -> bytes:
        """Reads until the output since the last read has the text, or the program has ended."""
        wanted = text.encode() if isinstance(text, str) else text
        seen = b""
        while wanted not in seen:
            piece = self.read()
            if not piece:
                break
            seen += piece
        return seen

    def _pieces(self) -> Iterator[bytes]:
        while piece := self.read():
            yield piece

    def __iter__(self) -> Iterator[Any]:
        return self._pieces()

    def close(self) -> None:
        """Ends the program, if it still runs."""
        if self._follower.result is None:
            _io.cleanup(self.kill)
        self._chunks.close()


def deliver(follower: Follower, on_stdout: Callable[[str], Any] | None,
                  on_stderr: Callable[[str], Any] | None,
                  on_output: Callable[[Chunk], Any] | None = None) -> CommandResult:
    """Follows a command to its end."""
    with closing(follower.chunks()) as chunks:
        for chunk in chunks:
            if chunk is not None and chunk.data:
                _io.invoke(on_output, chunk)
                _io.invoke(on_stdout if chunk.stream == "stdout" else on_stderr, chunk.text)
    return command_result(follower.result or {})


def run_to_end(transport: Transport, container: str, body: dict[str, Any],
                     on_stdout: Callable[[str], Any] | None,
                     on_stderr: Callable[[str], Any] | None,
                     on_output: Callable[[Chunk], Any] | None) -> CommandResult:
    """Runs a command to its end. It is killed if this call is interrupted, as by a cancellation or by Ctrl-C."""
    follower = Follower(transport, container, body=body)

    def kill() -> None:
        transport.post(path("containers", container, "execs", follower.exec_id, "signal"),
                             {"signal": "SIGKILL"}, repeat=True)

    try:
        return deliver(follower, on_stdout, on_stderr, on_output)
    except BerthError:
        raise
    except BaseException:
        if follower.exec_id and follower.result is None:
            _io.cleanup(kill)
        raise
