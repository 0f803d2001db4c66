"""What differs between the two clients and cannot be derived: waiting, threads, callbacks. See ../_async/_io.py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")

PIECE = 1 << 20  # bytes that are read of a file at once


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def in_thread(call: Callable[..., T], *args: Any) -> T:
    """Calls what blocks. There is nothing here that it would keep from running."""
    return call(*args)


def invoke(callback: Callable[[T], Any] | None, value: T) -> None:
    """Calls a callback of the user."""
    if callback is not None:
        callback(value)


def cleanup(call: Callable[[], Any]) -> None:
    """Calls something. Its errors are dropped: another one is under way."""
    with contextlib.suppress(Exception):
        call()


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """Reads a file to its end."""
    while piece := file.read(PIECE):
        yield piece
