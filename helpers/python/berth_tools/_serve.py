"""The client's end of GET /v1/containers/{id}/tools: a websocket on which the daemon sends calls and gets results."""

import asyncio
import concurrent.futures
import dataclasses
import inspect
import json
import logging
import os
import threading
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ._schema import Tool, tool

log = logging.getLogger("berth_tools")

KEPT = 1000  # maximum kept results of calls whose connection broke, until it is back
LONGEST_PAUSE = 5.0  # seconds between two tries to connect
LONGEST_MESSAGE = 8 << 20  # bytes; inputs are at most 1 MiB
LONGEST_RESULT = 4 << 20  # bytes; the daemon's limit. A much larger message ends the connection.

Tools = Union[Iterable[Union[Tool, Callable[..., Any]]], Mapping[str, Callable[..., Any]]]


def serve(container_id: str, tools: Tools, *, base_url: Optional[str] = None, api_key: Optional[str] = None,
          workers: int = 32, timeout: float = 30.0) -> "Server":
    """serve answers calls of code in a container with local functions, until the Server is closed.

    It returns when the daemon knows the functions. Calls run in threads, at most workers at a time; coroutine functions
    run in one loop. If the connection breaks, the Server reconnects and then answers the calls that were under way.

    Args:
        container_id: The container. Its code_tools, set at its creation, must allow the tools' names.
        tools: Functions, Tools, or a mapping from names to functions.
        base_url: The daemon's URL. The default is BERTH_HOST of the environment.
        api_key: The API key. The default is BERTH_API_KEY of the environment.
        workers: Maximum concurrent calls.
        timeout: Maximum seconds until the daemon's first answer.
    """
    if isinstance(tools, Mapping):
        tools = [tool(f, name=name) for name, f in tools.items()]
    server = Server(
        container_id, [tool(t) for t in tools], base_url or os.environ.get("BERTH_HOST", ""),
        api_key or os.environ.get("BERTH_API_KEY", ""), workers)
    server._start(timeout)
    return server


class Server:
    """A Server answers calls. As a context manager it calls close at the end."""

    names: List[str]  # names of the tools that code may call, without those that the container does not allow

    def __init__(self, container_id: str, tools: List[Tool], base_url: str, api_key: str, workers: int) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError("base_url must be the URL of a daemon, such as http://127.0.0.1:7117; or set BERTH_HOST")
        self.names = []
        self._tools = {t.name: t for t in tools}
        self._url = "ws" + base_url[len("http"):].rstrip("/") + f"/v1/containers/{container_id}/tools"
        self._headers = {"X-Api-Key": api_key}
        self._pool = concurrent.futures.ThreadPoolExecutor(workers, "berth-tools")
        self._ready: "concurrent.futures.Future[None]" = concurrent.futures.Future()
        self._ended = threading.Event()
        self._error: Optional[BaseException] = None
        self._calls: Dict[str, "asyncio.Task[None]"] = {}
        self._answers: "OrderedDict[str, str]" = OrderedDict()  # of calls whose connection broke
        self._socket: Any = None
        self._thread = threading.Thread(target=self._main, name="berth-tools", daemon=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """close ends the connection. Calls that are under way fail in the container."""
        if not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._pool.shutdown(wait=False)

    def wait(self, timeout: Optional[float] = None) -> None:
        """wait returns after close or after timeout seconds. It raises the server's error, such as a lost container."""
        self._ended.wait(timeout)
        if self._error is not None:
            raise self._error

    def _start(self, timeout: float) -> None:
        self._thread.start()
        try:
            self._ready.result(timeout)
        except concurrent.futures.TimeoutError:
            self.close()
            raise TimeoutError(f"{self._url} did not answer within {timeout:g} seconds") from None

    def _main(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._run())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except BaseException as e:
            self._error = e
            log.error("answering calls ended: %s", e)
        finally:
            self._loop.run_until_complete(self._drop())
            self._loop.close()
            self._ended.set()
            if not self._ready.done():
                self._ready.set_exception(self._error or ConnectionError("it was closed"))

    async def _drop(self) -> None:
        """_drop cancels all running calls. It does not wait for calls in threads."""
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _run(self) -> None:
        """_run connects and reconnects until the daemon refuses permanently."""
        pause = 0.1
        while True:
            try:
                async with connect(
                        self._url, additional_headers=self._headers, max_size=LONGEST_MESSAGE, open_timeout=20,
                        proxy=None) as socket:
                    await self._serve(socket)
                    pause = 0.1
            except InvalidStatus as e:
                if e.response.status_code < 500 and e.response.status_code != 429:
                    raise ConnectionError(reason(e)) from None
            except (OSError, ConnectionClosed, InvalidHandshake) as e:
                log.info("the connection broke: %s", e)
                if isinstance(e, ConnectionClosed) and self._ready.done():
                    pause = 0.1
            finally:
                self._socket = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _serve(self, socket: Any) -> None:
        await socket.send(json.dumps({"type": "serve", "tools": [t.spec() for t in self._tools.values()]}))
        self._socket = socket
        async for text in socket:
            m = json.loads(text)
            kind, call = m.get("type"), m.get("call_id", "")
            if kind == "call":
                await self._called(call, m)
            elif kind == "cancel" and call in self._calls:
                self._calls[call].cancel()
            elif kind == "serving":
                self._served(m.get("tools") or [])
            elif kind == "error" and not call and not self._ready.done():
                raise ValueError(m.get("error", {}).get("message", "the daemon refused the tools"))
            elif kind == "error":
                log.warning("the daemon refused an answer: %s", m.get("error", {}).get("message"))

    def _served(self, names: List[str]) -> None:
        self.names = names
        left = sorted(set(self._tools) - set(names))
        if left:
            log.warning("the container does not allow %s: no code can call it", ", ".join(left))
        if not self._ready.done():
            self._ready.set_result(None)

    async def _called(self, id: str, m: Dict[str, Any]) -> None:
        if id in self._answers:
            await self._send(id, self._answers.pop(id))
        elif id not in self._calls:  # otherwise the daemon repeats a running call after the connection broke
            self._calls[id] = self._loop.create_task(self._answer(id, m))

    async def _answer(self, id: str, m: Dict[str, Any]) -> None:
        try:
            result = await self._result(m["tool"], m.get("input") or {})
            text = json.dumps(result, default=plain, allow_nan=False)
            if len(text) > LONGEST_RESULT:
                raise RuntimeError(
                    f"the result has {len(text)} bytes; {LONGEST_RESULT} is the limit; give back less, or put it into "
                    "a file")
            text = '{"type": "result", "call_id": %s, "result": %s}' % (json.dumps(id), text)
        except asyncio.CancelledError:
            return
        except Exception as e:
            text = json.dumps({
                "type": "error", "call_id": id, "error": {"type": type(e).__name__, "message": str(e)[:10_000]}})
        finally:
            self._calls.pop(id, None)
        await self._send(id, text)

    async def _result(self, name: str, input: Dict[str, Any]) -> Any:
        t = self._tools.get(name)
        if t is None:
            raise NameError(f"tool {name} is not served here")
        if inspect.iscoroutinefunction(t.call):
            return await t.run(input)
        result = await self._loop.run_in_executor(self._pool, t.run, input)
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


def plain(value: Any) -> Any:
    """plain returns a substitute for a value that JSON does not have."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    for method in ("model_dump", "tolist", "isoformat", "__fspath__"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be the result of a tool")


def reason(e: InvalidStatus) -> str:
    """reason returns the daemon's message for a refused connection."""
    try:
        return str(json.loads(e.response.body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the daemon answered with status {e.response.status_code}"
