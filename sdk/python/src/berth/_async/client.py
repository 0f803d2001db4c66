"""A connection to one daemon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .._wire import decode, decode_list
from ..types import Info, Stats, Workspace
from ._transport import AsyncTransport
from .resources import (
    AsyncApprovals, AsyncAudit, AsyncBuilds, AsyncEvents, AsyncImages, AsyncKeys, AsyncSnapshots, AsyncStoredTools,
    AsyncWebhooks,
)
from .sandbox import AsyncSandbox
from .stored import AsyncSkills, AsyncStoredFiles


class AsyncClient:
    """A daemon and an API key. It may be used by many tasks at once; the end of a `with` block closes its connections.

    Requests are repeated while the daemon is away, as while it restarts, and when it says that there are too many. A
    request whose connection broke is repeated only if it may come twice: if it reads, leads to the same state, or has
    an idempotency key, as commands and the creation of sandboxes always do.

    Args:
        url: The daemon's URL. The default is BERTH_URL, BERTH_HOST, or http://127.0.0.1:7117.
        key: The API key. The default is BERTH_API_KEY, the content of the file that BERTH_API_KEY_FILE names, or of
            /var/lib/berth/api-key.
        timeout: Seconds without a byte of an answer after which a connection counts as broken. Commands and streams
            have no such limit beyond a minute, in which the daemon sends at least four signs of life.
        wait: Seconds for which requests are repeated. 0: never, and no idempotency keys are made.
        ca_file: File of the CA certificates to trust, in place of the system's.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout: float = 60.0, wait: float = 30.0,
                 ca_file: str | os.PathLike[str] | None = None) -> None:
        self.transport = AsyncTransport(url, key, timeout=timeout, wait=wait, ca_file=ca_file)
        """Sends requests; for calls of the API that have no method here."""
        t = self.transport
        self.files = AsyncStoredFiles(t)
        self.skills = AsyncSkills(t)
        self.images = AsyncImages(t)
        self.builds = AsyncBuilds(t)
        self.keys = AsyncKeys(t)
        self.webhooks = AsyncWebhooks(t)
        self.events = AsyncEvents(t)
        self.approvals = AsyncApprovals(t)
        self.audit = AsyncAudit(t)
        self.snapshots = AsyncSnapshots(t)
        self.tools = AsyncStoredTools(t)
        self.sandboxes = AsyncSandboxes(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """The daemon's URL."""
        return self.transport.url

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections."""
        await self.transport.release()

    async def info(self) -> Info:
        """Describes the daemon."""
        return decode(Info, await self.transport.get("/v1/info"))

    async def stats(self) -> Sequence[Stats]:
        """Returns what each running container uses now."""
        return decode_list(Stats, (await self.transport.get("/v1/stats"))["data"])

    async def workspaces(self) -> Sequence[Workspace]:
        """Lists workspaces, newest first."""
        return decode_list(Workspace, (await self.transport.get("/v1/workspaces"))["data"])


class AsyncSandboxes:
    """The containers of the key's owner."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(self, **settings: Any) -> AsyncSandbox:
        """Works like AsyncSandbox.create."""
        return await AsyncSandbox.create(client=self._client, **settings)

    async def get(self, id: str) -> AsyncSandbox:
        """Works like AsyncSandbox.get."""
        return await AsyncSandbox.get(id, client=self._client)

    async def list(self, **selection: Any) -> Sequence[AsyncSandbox]:
        """Works like AsyncSandbox.list."""
        return await AsyncSandbox.list(client=self._client, **selection)


