"""Requests and their repetition. Every other part of the client sends through here."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .. import _config
from .._http import httpx
from .._retry import Retry
from .._sse import Parser, ServerEvent
from .._wire import format_time
from ..errors import BerthError, ConnectionFailedError, ExpiredError, NotFoundError, from_answer
from ..version import __version__
from . import _io

SILENCE = 60.0  # seconds without a byte after which a stream counts as broken; the daemon sends one each 15 seconds


@dataclass
class Request:
    """One call of the API."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    json: Any = None
    content: bytes | Callable[[], AsyncIterator[bytes]] | None = None
    """The body; a function makes it anew for each attempt."""
    form: Mapping[str, Any] | list[tuple[str, Any]] | None = None
    """Parts of a form, as httpx takes them for files."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    repeat: bool | None = None
    """Whether it may come twice. None: all but POST may."""
    timeout: float | None = None
    """Seconds without a byte of the answer; None is the client's own."""

    @property
    def may_repeat(self) -> bool:
        return self.method != "POST" if self.repeat is None else self.repeat


def _query(values: Mapping[str, Any]) -> list[tuple[str, str | int | float | bool | None]]:
    out: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in values.items():
        several: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        for v in several:
            if isinstance(v, bool):
                v = "true" if v else None
            elif isinstance(v, datetime):
                v = format_time(v)
            if v is not None and v != "":
                out.append((name, str(v)))
    return out


class AsyncTransport:
    """One daemon, with a pool of connections to it."""

    def __init__(self, url: str | None, key: str | None, *, timeout: float, wait: float,
                 ca_file: str | os.PathLike[str] | None) -> None:
        self.url = _config.find_url(url)
        self.key = _config.find_key(key)
        self.wait = wait
        self.timeout = timeout
        self.ca_file = ca_file
        self._users = 1
        self.met = False  # the daemon has answered before
        self.tls: ssl.SSLContext | None = _config.trust(ca_file) if self.url.startswith("https:") else None
        self.headers = {"User-Agent": f"berth-sdk-python/{__version__}", "Accept-Encoding": "identity"}
        if self.key:
            self.headers["X-Api-Key"] = self.key
        # A proxy of the environment is not asked about this machine.
        local = httpx.URL(self.url).host in ("localhost", "127.0.0.1", "::1")
        self._http = httpx.AsyncClient(
            verify=self.tls or False, trust_env=not local, headers=self.headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10), pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32))

    def share(self) -> AsyncTransport:
        """Returns the transport for one more user, who releases it."""
        self._users += 1
        return self

    async def release(self) -> None:
        """Says that one user has gone; the last one closes all connections."""
        self._users -= 1
        if self._users == 0:
            await self._http.aclose()

    def settings(self) -> dict[str, Any]:
        """Returns the arguments of a client for the same daemon and key."""
        return {"url": self.url, "key": self.key, "timeout": self.timeout, "wait": self.wait, "ca_file": self.ca_file}

    def retry(self, *, repeat: bool) -> Retry:
        """Returns the rules for one request."""
        return Retry(self.wait, repeat=repeat, met=self.met)

    async def open(self, request: Request) -> httpx.Response:
        """Sends a request, again if need be. Its answer has a status of success, and is to be closed by the caller."""
        retry = self.retry(repeat=request.may_repeat)
        while True:
            try:
                return await self._open_once(request)
            except BerthError as e:
                if retry.broke and request.method == "DELETE" and isinstance(e, (NotFoundError, ExpiredError)):
                    return httpx.Response(200, json={})  # the attempt without an answer has deleted it
                pause = retry.delay(e)
                if pause is None:
                    raise
            await _io.sleep(pause)

    async def _open_once(self, request: Request) -> httpx.Response:
        if self._http.is_closed:
            raise RuntimeError(f"the connections to {self.url} are closed, as by `close`, the end of a `with` block or "
                               "the deletion of a sandbox without a client; make another client")
        content = request.content() if callable(request.content) else request.content
        timeout = httpx.Timeout(request.timeout or self.timeout, connect=min(self.timeout, 10), pool=None)
        built = self._http.build_request(
            request.method, self.url + request.path, params=_query(request.query) or None,
            json=request.json, content=content, files=request.form, headers=request.headers, timeout=timeout)
        with self._connection_errors():
            response = await self._http.send(built, stream=True)
            self.met = True
            if response.is_success:
                return response
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        raise from_answer(self.url, response.status_code, response.headers, body)

    def _connection_errors(self) -> _ConnectionErrors:
        return _ConnectionErrors(self.url)

    async def call(self, request: Request) -> Any:
        """Sends a request and returns its answer from JSON."""
        _, answer = await self.call_with_status(request)
        return answer

    async def call_with_status(self, request: Request) -> tuple[int, Any]:
        """Works like call, and returns the status before the answer."""
        retry = self.retry(repeat=request.may_repeat)
        while True:
            response = await self.open(request)
            try:
                with self._connection_errors():
                    body = await response.aread()
                break
            except ConnectionFailedError as e:
                pause = retry.delay(e)
                if pause is None:
                    raise
            finally:
                await response.aclose()
            await _io.sleep(pause)
        try:
            return response.status_code, json.loads(body) if body else {}
        except ValueError:
            raise from_answer(self.url, response.status_code, response.headers, body) from None

    async def get(self, path: str, /, **query: Any) -> Any:
        """Sends a GET."""
        return await self.call(Request("GET", path, query))

    async def post(self, path: str, json: Any = None, *, repeat: bool = False, **query: Any) -> Any:
        """Sends a POST with JSON; the default is an empty object, which every route takes."""
        return await self.call(Request("POST", path, query, {} if json is None else json, repeat=repeat))

    async def patch(self, path: str, json: Any) -> Any:
        """Sends a PATCH with JSON."""
        return await self.call(Request("PATCH", path, json=json))

    async def put(self, path: str, json: Any = None) -> Any:
        """Sends a PUT with JSON."""
        return await self.call(Request("PUT", path, json=json))

    async def delete(self, path: str, /, **query: Any) -> Any:
        """Sends a DELETE."""
        return await self.call(Request("DELETE", path, query))

    async def pages(self, path: str, /, **query: Any) -> AsyncGenerator[Any, None]:
        """Gives the items of a list of pages, from the first to the last."""
        while True:
            page: dict[str, Any] = await self.get(path, **query)
            items: list[Any] = page.get("data") or []
            for item in items:
                yield item
            after: str | None = page.get("next_after") or (items[-1]["id"] if page.get("has_more") and items else None)
            if not after:
                return
            query["after"] = after

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Sends a request, and gives the bytes of its answer as they arrive."""
        response = await self.open(request)
        try:
            yield self._bytes(response)
        finally:
            await response.aclose()

    async def _bytes(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        with self._connection_errors():
            async for piece in response.aiter_raw():
                yield piece

    async def events(self, request: Request) -> AsyncGenerator[ServerEvent, None]:
        """Sends a request, and gives the events of its answer. It ends when the answer does."""
        request.headers = {**request.headers, "Accept": "text/event-stream"}
        request.timeout = request.timeout or SILENCE
        async with self.stream(request) as body:
            parser = Parser()
            async for piece in body:
                for event in parser.feed(piece):
                    yield event

    async def lines(self, request: Request) -> AsyncGenerator[dict[str, Any], None]:
        """Sends a request, and gives the lines of its answer from JSON."""
        rest = b""
        async with self.stream(request) as body:
            async for piece in body:
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    if line.strip():
                        yield json.loads(line)
        if rest.strip():
            yield json.loads(rest)

    def broken(self, what: str) -> ConnectionFailedError:
        """Returns the error for an answer that ended before it was complete."""
        return ConnectionFailedError(f"the connection to {self.url} ended before {what}", sent=True)


class _ConnectionErrors:
    """Converts errors of the connection into those of this package."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            raise ConnectionFailedError(f"no daemon answers at {self.url}: {error}", sent=False) from error
        if isinstance(error, httpx.TimeoutException):
            raise ConnectionFailedError(f"{self.url} did not answer in time", sent=True) from error
        if isinstance(error, (httpx.TransportError, httpx.StreamError)):
            raise ConnectionFailedError(f"the connection to {self.url} broke: {error}", sent=True) from error

