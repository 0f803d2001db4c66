"""What listens in a container."""

from __future__ import annotations

import builtins

from .._config import path
from .._wire import body, decode, decode_list
from ..forward import AsyncForward
from ..types import Port, PortURL, PublishedPorts
from ._transport import AsyncTransport


class AsyncPorts:
    """Programs of a container that listen, and how others reach them."""

    def __init__(self, transport: AsyncTransport, container: str) -> None:
        self._transport = transport
        self._container = container

    def _path(self, *rest: str) -> str:
        return path("containers", self._container, *rest)

    async def list(self) -> builtins.list[Port]:
        """Lists the ports that programs listen on. A stopped or paused container has none, and stays so."""
        return decode_list(Port, (await self._transport.get(self._path("ports")))["data"])

    async def url(self, port: int, *, expires_in_seconds: int | None = None) -> str:
        """Returns a URL of a port that anyone may open who has it, as in a browser.

        Args:
            port: From 1 to 65535. Nothing needs to listen there yet.
            expires_in_seconds: How long it is valid, one hour by default and 7 days at most. It also ends with the
                container and with the API key.

        Raises:
            PermissionDeniedError: The daemon allows none, or has no domain; see `berth serve --ports-max`.
        """
        return (await self.signed_url(port, expires_in_seconds=expires_in_seconds)).url

    async def signed_url(self, port: int, *, expires_in_seconds: int | None = None) -> PortURL:
        """Works like url, and says when the URL expires."""
        return decode(PortURL, await self._transport.post(
            self._path("ports", str(port), "url"), body(expires_in_seconds=expires_in_seconds), repeat=True))

    def api_url(self, port: int) -> str:
        """Returns the URL of a port below the API, which needs an API key in the header X-Api-Key."""
        return self._transport.url + self._path("ports", str(port)) + "/"

    async def forward(self, port: int, local_port: int = 0, *, host: str = "127.0.0.1") -> AsyncForward:
        """Listens on this machine, and leads each connection to a port of the container, whatever its protocol is.

        Args:
            port: From 1 to 65535. Nothing needs to listen there yet; a connection that nothing takes is closed.
            local_port: The port of this machine; 0 takes a free one.
            host: The address of this machine.

        Raises:
            OSError: The local port is taken.
        """
        return await AsyncForward.open(self._transport, self._container, port, host, local_port)

    async def publish(self, port: int | str) -> PublishedPorts:
        """Makes a port public, or all of them with "all": requests to its URL then need no credential.

        Raises:
            PermissionDeniedError: The daemon does not allow it; see `berth serve --ports-max public`.
        """
        return decode(PublishedPorts, await self._transport.put(self._path("public-ports", str(port))))

    async def withdraw(self, port: int | str) -> PublishedPorts:
        """Makes a port private again, or all of them with "all"."""
        return decode(PublishedPorts, await self._transport.delete(self._path("public-ports", str(port))))
