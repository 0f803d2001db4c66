"""Parses server-sent events. There is no I/O here, so both clients use it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class ServerEvent:
    """One event: its ID, and its data as JSON."""

    id: str
    data: dict[str, Any]


class Parser:
    """Takes bytes as they arrive and gives events that are complete."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that is not complete
        self._id = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Returns the events that this piece completes."""
        lines = piece.split(b"\n")
        if len(lines) == 1:
            self._rest.append(piece)
            return []
        lines[0] = b"".join([*self._rest, lines[0]])
        self._rest = [lines.pop()]
        events: list[ServerEvent] = []
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if not line:
                if self._data:
                    events.append(ServerEvent(self._id, json.loads(b"\n".join(self._data))))
                self._data = []
                continue
            name, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                self._data.append(value)
            elif name == b"id":
                self._id = value.decode()
        return events
