"""Ports of this machine that lead to ports of containers: the client's end of GET /v1/containers/{id}/tunnel.

There is one forwarder, which is asynchronous. Forward runs it in a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ._config import path
from .toolserver import Daemon, refusal

__all__ = ["AsyncForward", "Forward"]

log = logging.getLogger("berth.ports")

PIECE = 32 << 10  # bytes of one message


class AsyncForward:
    """A port of this machine whose connections lead to a port of a container, in the loop in which it was opened.

    Each connection is a tunnel of its own, of any protocol. One that the container does not take is closed.
    """

    def __init__(self, daemon: Daemon, container: str, port: int) -> None:
        self.host = ""
        """Where it listens."""
        self.port = 0
        """The port of this machine."""
        self._daemon = daemon
        self._url = f"ws{daemon.url[len('http'):]}{path('containers', container, 'tunnel')}?port={port}"
        self._server: asyncio.Server
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, daemon: Daemon, container: str, port: int, host: str, local_port: int) -> AsyncForward:
        """Begins to listen."""
        forward = cls(daemon, container, port)
        forward._server = await asyncio.start_server(forward._accept, host, local_port)
        forward.host, forward.port = forward._server.sockets[0].getsockname()[:2]
        return forward

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}:{self.port}>"

    async def __aenter__(self) -> AsyncForward:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops listening, and ends all connections."""
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = {"X-Api-Key": self._daemon.key} if self._daemon.key else {}
        try:
            async with connect(
                    self._url, additional_headers=headers, compression=None, open_timeout=20, ssl=self._daemon.tls,
                    proxy=None) as socket:
                await _both(_send(reader, socket), _receive(socket, writer))
        except InvalidStatus as e:
            log.info("a connection was refused: %s", refusal(self._daemon.url, e))
        except (OSError, ConnectionClosed, InvalidHandshake) as e:
            log.info("a connection broke: %s", e)
        finally:
            writer.close()


async def _both(*directions: Any) -> None:
    """Waits for both directions. If one breaks, the other is ended."""
    tasks = [asyncio.ensure_future(d) for d in directions]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _send(reader: asyncio.StreamReader, socket: ClientConnection) -> None:
    while piece := await reader.read(PIECE):
        await socket.send(piece)
    await socket.send(b"")


async def _receive(socket: ClientConnection, writer: asyncio.StreamWriter) -> None:
    async for message in socket:
        if not message:
            break
        writer.write(message if isinstance(message, bytes) else message.encode())
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


class Forward:
    """A port of this machine whose connections lead to a port of a container, in a thread of its own.

    Each connection is a tunnel of its own, of any protocol. One that the container does not take is closed.
    """

    def __init__(self, daemon: Daemon, container: str, port: int, host: str, local_port: int) -> None:
        self._loop = asyncio.new_event_loop()
        began: concurrent.futures.Future[AsyncForward] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=self._main, args=(AsyncForward.open(daemon, container, port, host, local_port), began),
            name="berth-forward", daemon=True)
        self._thread.start()
        self._forward = began.result()
        self.host: str = self._forward.host
        """Where it listens."""
        self.port: int = self._forward.port
        """The port of this machine."""

    @classmethod
    def open(cls, daemon: Daemon, container: str, port: int, host: str, local_port: int) -> Forward:
        """Begins to listen."""
        return cls(daemon, container, port, host, local_port)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}:{self.port}>"

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._forward.aclose(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _main(self, opening: Any, began: concurrent.futures.Future[AsyncForward]) -> None:
        try:
            began.set_result(self._loop.run_until_complete(opening))
        except BaseException as e:
            self._loop.close()
            began.set_exception(e)
            return
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
