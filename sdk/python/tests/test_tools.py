"""Functions of this process that code in a container calls."""

from __future__ import annotations

import asyncio
import enum
import threading
import typing

import pytest

from berth import (
    AsyncClient, AsyncSandbox, BerthError, Client, ConflictError, NotFoundError, Sandbox, UnauthenticatedError, tool,
)
from conftest import Daemon


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


together = threading.Barrier(8)


def fetch(u: str, tries: int = 3, *, kind: typing.Optional[str] = None) -> str:
    """Fetches a page.

    Not a real one.

    Args:
        u: Which page,
            by its name.
        tries (int): How often.

    Returns:
        Its text.
    """
    return f"page {u} {tries} {kind}"


def meet(n: int) -> int:
    together.wait(30)  # returns only when eight calls are here
    return n


async def later(xs: typing.List[int], colour: Colour = Colour.RED) -> typing.Dict[str, int]:
    await asyncio.sleep(0.01)
    return {"sum": sum(xs)}


def fail() -> None:
    raise KeyError("no such thing")


def odd() -> object:
    return object()


def large() -> str:
    return "x" * 9_000_000


def test_descriptions() -> None:
    spec = tool(fetch).spec()
    assert spec["description"] == "Fetches a page.\n\nNot a real one."
    assert spec["input_schema"] == {
        "type": "object", "required": ["u"], "additionalProperties": False, "properties": {
            "u": {"type": "string", "description": "Which page, by its name."},
            "tries": {"type": "integer", "description": "How often.", "default": 3},
            "kind": {"type": ["string", "null"], "default": None}}}
    assert tool(later).input_schema["properties"] == {
        "xs": {"type": "array", "items": {"type": "integer"}}, "colour": {"enum": ["red", "blue"]}}
    with pytest.raises(ValueError):
        tool(lambda *args: 0, name="x")
    with pytest.raises(ValueError):
        tool(lambda: 0)


NAMES = ["fetch", "meet", "later", "fail", "odd", "large", "named"]


def test_serve(client: Client, sandbox: Sandbox) -> None:
    with pytest.raises(ConflictError):
        sandbox.tools.serve([fetch])
    with Sandbox.create(client=client, code_tools=NAMES) as s, Client(key="another") as stranger:
        with pytest.raises(NotFoundError):
            Sandbox.get(s.id, client=client).tools.__class__(client.transport, "container_0000000000000000000000").serve(
                [fetch])
        with pytest.raises(UnauthenticatedError):
            s.tools.__class__(stranger.transport, s.id).serve([fetch])

        def run(code: str, language: str = "python") -> str:
            r = s.code.run(code, language=language)
            return r.error.name if r.error else r.text or r.stdout

        served = [fetch, meet, later, fail, odd, large, tool(lambda x: x, name="named"), tool(fetch, name="hidden")]
        with s.tools.serve(served) as server:
            assert sorted(server.names) == sorted(NAMES)
            assert run("fetch('x') + tools.fetch(u='y', tries=1)") == "'page x 3 Nonepage y 1 None'"
            assert run("from concurrent.futures import ThreadPoolExecutor\n"
                       "with ThreadPoolExecutor(8) as p: r = sum(p.map(meet, range(8)))\nr") == "28"
            assert run("later([1, 2, 3])['sum']") == "6"
            assert run("(await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(n => meet(n)))).length", "js") == "8"
            assert run("tools later 'xs=[4, 5]'", "bash") == '{"sum":9}\n'
            assert run("tools.named({'x': [1]})") == "[1]"
            for code, error in (
                    ("fail()", "RuntimeError"), ("odd()", "RuntimeError"), ("large()", "RuntimeError"),
                    ("fetch(1)", "ValueError"), ("fetch()", "ValueError"), ("fetch('u', nothing=1)", "ValueError"),
                    ("tools.hidden('x')", "PermissionError"), ("hidden('x')", "NameError")):
                assert run(code) == error
            assert run("from concurrent.futures import ThreadPoolExecutor\n"
                       "with ThreadPoolExecutor(16) as p: pages = list(p.map(fetch, map(str, range(50))))\n"
                       "len(set(pages))") == "50"
        assert run("fetch('x')") in ("RuntimeError", "NameError")


def test_calls_survive_a_restart(client: Client, daemon: Daemon) -> None:
    began, go = threading.Event(), threading.Event()

    def slow(n: int) -> int:
        began.set()
        go.wait(60)
        return n * n

    with Sandbox.create(client=client, code_tools={"allow": ["slow"]}) as s:
        with s.tools.serve({"slow": slow}) as server:
            c = s.run("python3 -c 'import tools; print(tools.slow(7), tools.slow(8))'", background=True)
            assert began.wait(60)
            daemon.restart()
            go.set()
            assert c.wait(timeout=60).stdout == "49 64\n"
        server.wait()
        assert len(s.tool_calls()) == 2


def test_async_functions_run_in_the_loop_of_the_caller() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def same() -> bool:
            return asyncio.get_running_loop() is loop

        async with AsyncClient() as c, await AsyncSandbox.create(client=c, code_tools=["same"]) as s:
            async with await s.tools.serve([same]):
                assert (await s.code.run("same()")).text == "True"
            with pytest.raises(BerthError):
                await s.tools.__class__(c.transport, "container_0000000000000000000000").serve([same])

    asyncio.run(main())
