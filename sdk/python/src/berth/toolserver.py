"""Serves local functions as tools to code in a container: the client's end of GET /v1/containers/{id}/tools.

There is one server, which is asynchronous. ToolServer runs it in a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import inspect
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ._config import path
from .errors import BerthError, from_answer, from_json
from .toolschema import Tool, tool

__all__ = ["AsyncToolServer", "AsyncTools", "Tool", "ToolServer", "Tools", "tool"]

log = logging.getLogger("berth.tools")

KEPT = 1000  # results of calls whose connection broke, until it is back
LONGEST_PAUSE = 5.0  # seconds between two tries to connect
LONGEST_MESSAGE = 8 << 20  # bytes; inputs are at most 1 MiB
LONGEST_RESULT = 4 << 20  # bytes; the daemon's limit. A much larger message ends the connection.

Function = Tool | Callable[..., Any]
Functions = Iterable[Function] | Mapping[str, Callable[..., Any]]


class Daemon(Protocol):
    """What a server needs to know of a transport."""

    url: str
    key: str
    tls: Any


def _tools(functions: Functions) -> list[Tool]:
    if isinstance(functions, Mapping):
        named = cast("Mapping[str, Callable[..., Any]]", functions)
        return [tool(f, name=name) for name, f in named.items()]
    return [tool(f) for f in functions]


class AsyncTools:
    """Functions of this process that code in the container calls. The container was created with their names in
    code_tools."""

    def __init__(self, transport: Daemon, container: str) -> None:
        self._daemon = transport
        self._container = container

    async def serve(self, functions: Functions, *, workers: int = 32, timeout: float = 30.0) -> AsyncToolServer:
        """Serves functions until the server is closed, as by the end of its `async with` block.

        Coroutine functions run in this loop, others in threads. If the connection breaks, it is made again, and calls
        that were under way are answered, each once.

        Args:
            functions: Functions, Tools, or a mapping from names to functions. The schema of a tool is made from the
                function's signature and docstring.
            workers: Maximum concurrent calls of functions that are not coroutines.
            timeout: Maximum seconds until the daemon knows the functions.

        Raises:
            ConflictError: The container has no code_tools.
            NotFoundError: There is no such container.
            TimeoutError: The daemon did not answer.
        """
        server = AsyncToolServer(self._daemon, self._container, _tools(functions), workers)
        await server.start(timeout)
        return server


class Tools:
    """Functions of this process that code in the container calls. The container was created with their names in
    code_tools."""

    def __init__(self, transport: Daemon, container: str) -> None:
        self._daemon = transport
        self._container = container

    def serve(self, functions: Functions, *, workers: int = 32, timeout: float = 30.0) -> ToolServer:
        """Serves functions in threads until the server is closed, as by the end of its `with` block.

        If the connection breaks, it is made again, and calls that were under way are answered, each once.

        Args:
            functions: Functions, Tools, or a mapping from names to functions. The schema of a tool is made from the
                function's signature and docstring. Coroutine functions run in a loop of the server.
            workers: Maximum concurrent calls.
            timeout: Maximum seconds until the daemon knows the functions.

        Raises:
            ConflictError: The container has no code_tools.
            NotFoundError: There is no such container.
            TimeoutError: The daemon did not answer.
        """
        return ToolServer(self._daemon, self._container, _tools(functions), workers, timeout)


class AsyncToolServer:
    """Answers calls, in the loop in which it was started."""

    names: list[str]
    """Names of the tools that code may call, without those that the container does not allow."""

    def __init__(self, daemon: Daemon, container: str, tools: list[Tool], workers: int) -> None:
        self.names = []
        self._tools = {t.name: t for t in tools}
        self._daemon = daemon
        self._url = "ws" + daemon.url[len("http"):] + path("containers", container, "tools")
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, "berth-tools")
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._answers: OrderedDict[str, str] = OrderedDict()  # of calls whose connection broke
        self._socket: ClientConnection | None = None
        self._ready: asyncio.Future[None]
        self._task: asyncio.Task[None]

    async def start(self, timeout: float) -> None:
        """Returns when the daemon knows the functions."""
        self._ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        done, _ = await asyncio.wait([self._ready, self._task], timeout=timeout,
                                     return_when=asyncio.FIRST_COMPLETED)
        if self._ready in done:
            return
        if self._task in done:
            self._ready.cancel()
            self._pool.shutdown(wait=False)
            await self._task  # raises
        await self.aclose()
        raise TimeoutError(f"{self._url} did not answer within {timeout:g} seconds")

    async def __aenter__(self) -> AsyncToolServer:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the connection. Calls that are under way fail in the container."""
        calls = [self._task, *self._calls.values()]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self._pool.shutdown(wait=False)

    async def wait(self) -> None:
        """Returns when the server is closed. It raises what ended it otherwise, such as the end of the container."""
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def _run(self) -> None:
        """Connects and reconnects until the daemon refuses for good."""
        headers = {"X-Api-Key": self._daemon.key} if self._daemon.key else {}
        pause = 0.1
        while True:
            try:
                async with connect(
                        self._url, additional_headers=headers, max_size=LONGEST_MESSAGE, open_timeout=20,
                        ssl=self._daemon.tls, proxy=None) as socket:
                    await self._serve(socket)
                    pause = 0.1
            except InvalidStatus as e:
                error = refusal(self._daemon.url, e)
                if error.status < 500 and error.status != 429:
                    raise error from None
            except (OSError, ConnectionClosed, InvalidHandshake) as e:
                log.info("the connection broke: %s", e)
                if isinstance(e, ConnectionClosed) and self._ready.done():
                    pause = 0.1
            finally:
                self._socket = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _serve(self, socket: ClientConnection) -> None:
        await socket.send(json.dumps({"type": "serve", "tools": [t.spec() for t in self._tools.values()]}))
        self._socket = socket
        async for text in socket:
            m: dict[str, Any] = json.loads(text)
            kind, call = m.get("type"), str(m.get("call_id", ""))
            if kind == "call":
                await self._called(call, m)
            elif kind == "cancel" and call in self._calls:
                self._calls[call].cancel()
            elif kind == "serving":
                self._served(m.get("tools") or [])
            elif kind == "error" and not call and not self._ready.done():
                raise from_json(m.get("error") or {})
            elif kind == "error":
                log.warning("the daemon refused an answer: %s", m.get("error", {}).get("message"))

    def _served(self, names: list[str]) -> None:
        self.names = names
        left = sorted(set(self._tools) - set(names))
        if left:
            log.warning("the container does not allow %s: no code can call it", ", ".join(left))
        if not self._ready.done():
            self._ready.set_result(None)

    async def _called(self, id: str, m: dict[str, Any]) -> None:
        if id in self._answers:
            await self._send(id, self._answers.pop(id))
        elif id not in self._calls:  # otherwise the daemon repeats a running call after the connection broke
            self._calls[id] = asyncio.create_task(self._answer(id, m))

    async def _answer(self, id: str, m: dict[str, Any]) -> None:
        try:
            result = await self._result(str(m["tool"]), m.get("input") or {})
            text = json.dumps(result, default=_plain, allow_nan=False)
            if len(text) > LONGEST_RESULT:
                raise RuntimeError(
                    f"the result has {len(text)} bytes; {LONGEST_RESULT} is the limit; give back less, or put it into "
                    "a file")
            text = f'{{"type": "result", "call_id": {json.dumps(id)}, "result": {text}}}'
        except asyncio.CancelledError:
            return
        except Exception as e:
            text = json.dumps({
                "type": "error", "call_id": id, "error": {"type": type(e).__name__, "message": str(e)[:10_000]}})
        finally:
            self._calls.pop(id, None)
        await self._send(id, text)

    async def _result(self, name: str, input: dict[str, Any]) -> Any:
        t = self._tools.get(name)
        if t is None:
            raise NameError(f"tool {name} is not served here")
        if inspect.iscoroutinefunction(t.call):
            return await t.run(input)
        result = await asyncio.get_running_loop().run_in_executor(self._pool, t.run, input)
        return await result if inspect.isawaitable(result) else result

    async def _send(self, id: str, text: str) -> None:
        try:
            if self._socket is not None:
                await self._socket.send(text)
                return
        except ConnectionClosed:
            pass
        self._answers[id] = text
        while len(self._answers) > KEPT:
            self._answers.popitem(last=False)


class ToolServer:
    """Answers calls, in threads of its own."""

    def __init__(self, daemon: Daemon, container: str, tools: list[Tool], workers: int, timeout: float) -> None:
        self._server = AsyncToolServer(daemon, container, tools, workers)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        began: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._main, args=(timeout, began), name="berth-tools", daemon=True)
        self._thread.start()
        began.result()

    @property
    def names(self) -> list[str]:
        """Names of the tools that code may call, without those that the container does not allow."""
        return self._server.names

    def __enter__(self) -> ToolServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Calls that are under way fail in the container."""
        if not self._ended.is_set():
            asyncio.run_coroutine_threadsafe(self._server.aclose(), self._loop)
        self._thread.join()

    def wait(self, timeout: float | None = None) -> None:
        """Returns after close, or after timeout seconds. It raises what ended the server otherwise, such as the end of
        the container."""
        self._ended.wait(timeout)
        if self._error is not None:
            raise self._error

    def _main(self, timeout: float, began: concurrent.futures.Future[None]) -> None:
        try:
            self._loop.run_until_complete(self._server.start(timeout))
        except BaseException as e:
            self._loop.close()
            self._ended.set()
            began.set_exception(e)
            return
        began.set_result(None)
        try:
            self._loop.run_until_complete(self._server.wait())
        except BaseException as e:
            self._error = e
            log.error("answering calls ended: %s", e)
        finally:
            self._loop.run_until_complete(self._server.aclose())
            self._loop.close()
            self._ended.set()


def _plain(value: Any) -> Any:
    """Returns a substitute for a value that JSON does not have."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for method in ("model_dump", "tolist", "isoformat", "__fspath__"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        return [*value]  # pyright: ignore[reportUnknownVariableType]
    raise TypeError(f"a {type(value).__name__} cannot be the result of a tool")


def refusal(url: str, e: InvalidStatus) -> BerthError:
    """Returns the daemon's error for a refused connection."""
    r = e.response
    return from_answer(url, r.status_code, {k.lower(): v for k, v in r.headers.raw_items()}, bytes(r.body or b""))
