# Made by dev/make_sync.py of ../_async/code.py; do not edit.
"""Code in a container, and interpreters that keep their variables."""

from __future__ import annotations

import base64
import builtins
import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from .._config import path
from .._wire import body, decode, decode_list
from ..errors import from_json
from ..results import CodeResult, Result, code_result
from ..types import CodeContext
from . import _io
from ._transport import Transport, Request

WORKSPACE = "/workspace"  # where commands and code begin, unless their caller says otherwise

Text = Callable[[str], Any]


class Code:
    """Code in a container. Languages: python, js, ts, r, java, bash, c, cpp, fortran, go, rust, php, as far as the image
    has them."""

    def __init__(self, transport: Transport, container: str) -> None:
        self._transport = transport
        self._container = container

    def run(self, code: str, *, language: str | None = None, context: Context | str | None = None,
                  cwd: str | None = None, env: Mapping[str, str] | None = None,
                  secrets: Mapping[str, str] | None = None, files: list[str] | None = None,
                  timeout_seconds: float | None = None, max_output_bytes: int | None = None,
                  on_stdout: Text | None = None, on_stderr: Text | None = None,
                  on_result: Callable[[Result], Any] | None = None) -> CodeResult:
        """Runs code and returns the value of its last expression, with what it displayed: figures, tables, text.

        A request whose connection breaks is not repeated: the code may have run.

        Args:
            code: At most 1 MiB.
            language: The default is python.
            context: Run it as a cell of this context, which keeps its variables; one that does not exist is made.
                None runs it in a fresh interpreter.
            cwd: Where it runs; the default is /workspace, and in a context the context's own.
            env: More environment.
            secrets: More environment, which is hidden in records. Not in a context.
            files: IDs of stored files to put into $INPUT_DIR first.
            timeout_seconds: From 0 to 86400; the default is the daemon's, usually 300.
            max_output_bytes: What is kept of each stream, 1 MiB by default and 16 MiB at most.
            on_stdout: Called with its output as it comes. Without a context, the code runs in one that is made for it,
                and its files in $OUTPUT_DIR are not in the result.
            on_stderr: Called with its standard error as it comes.
            on_result: Called with what it displays, when it does.

        Raises:
            UnsupportedError: The image lacks the language; the error names one that has it.
            UnavailableError: The connection broke.
        """
        streams = on_stdout or on_stderr or on_result
        if isinstance(context, Context):
            context = context.name
        if context is None and streams:
            passing = self.context(language=language or "python", cwd=cwd, env=env, secrets=secrets)
            try:
                return passing.run(
                    code, files=files, timeout_seconds=timeout_seconds, max_output_bytes=max_output_bytes,
                    on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)
            finally:
                _io.cleanup(passing.delete)
        if context is not None:
            return Context(self._transport, self._container, context).cell(
                code, language=language, cwd=cwd, env=env, files=files, timeout_seconds=timeout_seconds,
                max_output_bytes=max_output_bytes, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)
        return code_result(self._transport.call(Request(
            "POST", "/v1/run_code", timeout=86400, json=body(
                container=self._container, code=code, language=language, cwd=cwd or WORKSPACE, env=env,
                secrets=secrets, files=files, timeout_seconds=timeout_seconds, max_output_bytes=max_output_bytes))))

    def context(self, name: str | None = None, *, language: str = "python", cwd: str | None = None,
                      env: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None,
                      user: str | None = None, job_id: str | None = None) -> Context:
        """Starts an interpreter that keeps its variables from cell to cell.

        Args:
            name: 1 to 64 letters, digits, `-` and `_`. None makes one up.
            language: The default is python.
            cwd: Where it starts; the default is /workspace.
            env: Added to the environment of the container.
            secrets: More environment, which is hidden in records.
            user: user (default), root, or another user of the container.
            job_id: The job that it belongs to, in whose directory it starts if there is no cwd.

        Raises:
            AlreadyExistsError: There is a context of this name.
            ConflictError: The container has 64 contexts.
        """
        made = self._transport.post(path("containers", self._container, "contexts"), body(
            name=name or _name(), language=language, cwd=cwd or (None if job_id else WORKSPACE), env=env,
            secrets=secrets, user=user, job_id=job_id))
        return Context(self._transport, self._container, made["name"])

    def list(self) -> builtins.list[CodeContext]:
        """Lists the contexts of the container, by name."""
        answer = self._transport.get(path("containers", self._container, "contexts"))
        return decode_list(CodeContext, answer["data"])


def _name() -> str:
    return "sdk-" + secrets.token_hex(8)


class Context:
    """An interpreter that keeps its variables. Its cells take turns. The end of a `with` block deletes it."""

    def __init__(self, transport: Transport, container: str, name: str) -> None:
        self._transport = transport
        self._container = container
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: Any) -> None:
        _io.cleanup(self.delete)

    def _path(self, *rest: str) -> str:
        return path("containers", self._container, "contexts", self.name, *rest)

    def run(self, code: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
                  files: list[str] | None = None, timeout_seconds: float | None = None,
                  max_output_bytes: int | None = None, on_stdout: Text | None = None, on_stderr: Text | None = None,
                  on_result: Callable[[Result], Any] | None = None) -> CodeResult:
        """Runs a cell. The arguments are those of `sandbox.code.run`; cwd and env hold for this cell alone.

        A call that is interrupted interrupts the cell, whose variables stay.
        """
        return self.cell(
            code, language=None, cwd=cwd, env=env, files=files, timeout_seconds=timeout_seconds,
            max_output_bytes=max_output_bytes, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result)

    def cell(self, code: str, *, on_stdout: Text | None, on_stderr: Text | None,
                   on_result: Callable[[Result], Any] | None, **given: Any) -> CodeResult:
        """Runs a cell with what the API takes for one."""
        request = Request("POST", self._path("run"), json=body(code=code, **given))
        with closing(self._transport.events(request)) as events:
            for event in events:
                data = event.data
                kind = data["type"]
                if kind == "result":
                    return code_result(data["result"])
                if kind == "error":
                    raise from_json(data["error"])
                if kind in ("stdout", "stderr"):
                    text = data["data"] if "data" in data else base64.b64decode(data["data_base64"]).decode(
                        errors="replace")
                    _io.invoke(on_stdout if kind == "stdout" else on_stderr, text)
                elif kind == "display":
                    shown = data["display"]
                    rich = {"text/plain": shown["text"], **shown["rich"]}
                    _io.invoke(on_result, Result(rich, bool(shown.get("main"))))
        raise self._transport.broken("the cell")

    def info(self) -> CodeContext:
        """Describes the context."""
        return decode(CodeContext, self._transport.get(self._path()))

    def interrupt(self) -> None:
        """Interrupts the running cell, as Ctrl-C does. The variables stay."""
        self._transport.post(self._path("interrupt"))

    def restart(self) -> None:
        """Ends the interpreter with its running cell, and starts a new one without variables."""
        self._transport.post(self._path("restart"))

    def delete(self) -> None:
        """Ends the interpreter."""
        self._transport.delete(self._path())
