"""Follows the output of one command over broken connections and restarts of the daemon."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from .._config import path
from ..errors import ConnectionFailedError, from_json
from ..results import Chunk
from . import _io
from ._transport import AsyncTransport, Request


class AsyncFollower:
    """A command that is started, or that runs already, and how far its output is known.

    With a body, the first request starts the command. After its first answer the command is known by its ID, and each
    later request continues at the offsets.
    """

    def __init__(self, transport: AsyncTransport, container: str, *, body: dict[str, Any] | None = None,
                 exec_id: str = "") -> None:
        self.exec: dict[str, Any] | None = None
        self.exec_id = exec_id
        self.result: dict[str, Any] | None = None
        self._transport = transport
        self._container = container
        self._body = body
        self._at = {"stdout": 0, "stderr": 0}

    def _request(self) -> Request:
        if self.exec_id:
            return Request("GET", path("containers", self._container, "execs", self.exec_id, "events"), {
                "stdout_offset": self._at["stdout"], "stderr_offset": self._at["stderr"]})
        body = self._body or {}
        return Request("POST", path("containers", self._container, "exec"), json=body,
                       repeat="idempotency_key" in body)

    async def chunks(self) -> AsyncGenerator[Chunk | None, None]:
        """Gives None when the command has started, and then its output. At the end, result is set."""
        retry = self._transport.retry(repeat=True)
        began = False
        while self.result is None:
            try:
                async with aclosing(self._transport.events(self._request())) as events:
                    async for event in events:
                        retry.reset()
                        chunk = self._take(event.data)
                        if not began or chunk is not None:
                            began = True
                            yield chunk
                if self.result is None:
                    raise self._transport.broken("the command")
            except ConnectionFailedError as e:
                again = bool(self.exec_id) or "idempotency_key" in (self._body or {})
                pause = retry.delay(e) if again else None
                if pause is None:
                    raise
                await _io.sleep(pause)

    def _take(self, event: dict[str, Any]) -> Chunk | None:
        kind = event["type"]
        if kind == "start":
            self.exec = event["exec"]
            self.exec_id = event["exec"]["id"]
        elif kind == "exit":
            self.result = event["result"]
        elif kind == "error":
            raise from_json(event["error"])
        elif kind == "gap":
            return self._piece(event["stream"], event["until"], b"")
        elif kind in ("stdout", "stderr"):
            data = base64.b64decode(event["data_base64"]) if "data_base64" in event else event["data"].encode()
            return self._piece(kind, event.get("offset", 0), data)
        return None

    def _piece(self, stream: Any, offset: int, data: bytes) -> Chunk | None:
        """Returns what is new of a piece. A command that was asked for once more tells its output from the start."""
        known = self._at[stream]
        if offset + len(data) <= known:
            return None
        self._at[stream] = offset + len(data)
        if offset < known:
            data, offset = data[known - offset:], known
        return Chunk(stream, data, offset, offset - known)
