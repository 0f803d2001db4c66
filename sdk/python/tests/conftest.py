"""Fixtures: the daemon that the Go test runs, a client, and a sandbox that tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from berth import Client, Sandbox
from berth._http import httpx


class Daemon:
    """The real daemon, which the Go test kills and starts when it is asked to."""

    def __init__(self) -> None:
        self._control = os.environ["BERTH_TEST_CONTROL"]

    def _ask(self, what: str) -> None:
        httpx.post(f"{self._control}/{what}", timeout=120, trust_env=False).raise_for_status()

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        self._ask("kill")

    def start(self) -> None:
        """Starts it again at the same address."""
        self._ask("start")

    def restart(self) -> None:
        """Kills it and starts it again."""
        self.kill()
        self.start()


@pytest.fixture(scope="session")
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Client() as c:
        yield c


@pytest.fixture(scope="session")
def sandbox(client: Client) -> Iterator[Sandbox]:
    with Sandbox.create(client=client, labels={"of": "tests"}) as s:
        yield s
