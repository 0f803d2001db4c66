# Made by dev/make_sync.py of ../_async/client.py; do not edit.
"""A connection to one daemon."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .._wire import decode, decode_list
from ..types import Info, Stats, Workspace
from ._transport import Transport
from .resources import (
    Approvals, Audit, Builds, Events, Images, Keys, Snapshots, StoredTools,
    Webhooks,
)
from .sandbox import Sandbox
from .stored import Skills, StoredFiles


class Client:
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
        self.transport = Transport(url, key, timeout=timeout, wait=wait, ca_file=ca_file)
        """Sends requests; for calls of the API that have no method here."""
        t = self.transport
        self.files = StoredFiles(t)
        self.skills = Skills(t)
        self.images = Images(t)
        self.builds = Builds(t)
        self.keys = Keys(t)
        self.webhooks = Webhooks(t)
        self.events = Events(t)
        self.approvals = Approvals(t)
        self.audit = Audit(t)
        self.snapshots = Snapshots(t)
        self.tools = StoredTools(t)
        self.sandboxes = Sandboxes(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """The daemon's URL."""
        return self.transport.url

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self.transport.release()

    def info(self) -> Info:
        """Describes the daemon."""
        return decode(Info, self.transport.get("/v1/info"))

    def stats(self) -> Sequence[Stats]:
        """Returns what each running container uses now."""
        return decode_list(Stats, (self.transport.get("/v1/stats"))["data"])

    def workspaces(self) -> Sequence[Workspace]:
        """Lists workspaces, newest first."""
        return decode_list(Workspace, (self.transport.get("/v1/workspaces"))["data"])


class Sandboxes:
    """The containers of the key's owner."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, **settings: Any) -> Sandbox:
        """Works like Sandbox.create."""
        return Sandbox.create(client=self._client, **settings)

    def get(self, id: str) -> Sandbox:
        """Works like Sandbox.get."""
        return Sandbox.get(id, client=self._client)

    def list(self, **selection: Any) -> Sequence[Sandbox]:
        """Works like Sandbox.list."""
        return Sandbox.list(client=self._client, **selection)


