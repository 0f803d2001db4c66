"""What differs between the two clients and cannot be derived: waiting, threads, callbacks. See ../_sync/_io.py."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")

PIECE = 1 << 20  # bytes that are read of a file at once

_cleanups: set[asyncio.Future[Any]] = set()  # the loop itself keeps weak references only


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


async def in_thread(call: Callable[..., T], *args: Any) -> T:
    """Calls what blocks."""
    return await asyncio.to_thread(call, *args)


async def invoke(callback: Callable[[T], Any] | None, value: T) -> None:
    """Calls a callback of the user, and waits for it if it is a coroutine function."""
    if callback is not None:
        answer = callback(value)
        if inspect.isawaitable(answer):
            await answer


async def cleanup(call: Callable[[], Awaitable[Any]]) -> None:
    """Calls something to its end although this task is canceled. Its errors are dropped: another one is under way."""
    task: asyncio.Future[Any] = asyncio.ensure_future(call())
    _cleanups.add(task)
    task.add_done_callback(_cleanups.discard)
    task.add_done_callback(lambda t: t.cancelled() or t.exception())  # so that asyncio does not log it
    with contextlib.suppress(Exception):
        await asyncio.shield(task)


async def pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """Reads a file to its end."""
    while piece := await asyncio.to_thread(file.read, PIECE):
        yield piece
