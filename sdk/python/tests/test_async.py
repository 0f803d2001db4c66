"""The asynchronous twin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from berth import AsyncClient, AsyncSandbox, AsyncWatch, NotFoundError
from berth.types import FileEvent


async def until_closed(watch: AsyncWatch) -> AsyncIterator[FileEvent]:
    async for event in watch:
        yield event
        if event.name == "new":
            return


def run(main: Callable[[AsyncSandbox], Awaitable[None]]) -> None:
    async def inner() -> None:
        async with AsyncClient() as client, await AsyncSandbox.create(client=client) as sandbox:
            await main(sandbox)

    asyncio.run(inner())


def test_forward_and_stream() -> None:
    async def main(s: AsyncSandbox) -> None:
        async with await s.ports.forward(8125) as forward:
            server = await s.run(["sh", "-c", "echo begins; exec python3 -m http.server 8125"], background=True)
            deadline = time.monotonic() + 30
            while 8125 not in [p.port for p in await s.ports.list()]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            reader, writer = await asyncio.open_connection(forward.host, forward.port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.0 200")
            writer.close()
            await server.kill()
        await s.files.write("big", b"x" * 3_000_000)
        sizes = [len(piece) async for piece in s.files.stream("big")]
        assert sum(sizes) == 3_000_000 and len(sizes) > 1

    run(main)


def test_the_job(tmp_path: Path) -> None:
    async def main(s: AsyncSandbox) -> None:
        await s.files.write("data.csv", "1\n2\n")
        out: list[str] = []

        async def got(text: str) -> None:
            await asyncio.sleep(0)
            out.append(text)

        r = await s.run("cat data.csv; cp data.csv back.csv", on_stdout=got)
        assert "".join(out) == "1\n2\n" == r.stdout
        assert (await s.files.get("back.csv", tmp_path / "b")).read_text() == "1\n2\n"
        assert (await s.code.run("6*7")).text == "42"
        async with await s.code.context() as c:
            await c.run("x = 1")
            assert (await c.run("x")).text == "1"
        c2 = await s.run("echo a; read x; echo $x", background=True, open_stdin=True)
        await c2.stdin("b\n")
        assert "".join([x.text async for x in c2]) == "a\nb\n"
        async with await s.files.watch(".") as watch:
            await s.files.write("new", "")
            assert "new" in [e.name async for e in until_closed(watch)]
        async with await s.pty("cat") as pty:
            await pty.send("x\n")
            assert b"x\r\nx" in await pty.read_until("x\r\nx")
        (fork,) = await s.fork()
        async with fork:
            assert await fork.files.read("data.csv") == b"1\n2\n"
        with pytest.raises(NotFoundError):
            await s.files.read("none")

    run(main)


def test_many_at_once() -> None:
    async def main(s: AsyncSandbox) -> None:
        results = await asyncio.gather(*[s.run(f"sleep 0.2; echo {i}") for i in range(20)])
        assert [r.stdout for r in results] == [f"{i}\n" for i in range(20)]

    run(main)


def test_cancellation_kills_the_command() -> None:
    async def main(s: AsyncSandbox) -> None:
        began = asyncio.Event()
        task = asyncio.create_task(s.run("echo begun; exec sleep 613", on_stdout=lambda _: began.set()))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (command,) = await s.commands()
        assert (await command.wait(timeout=30)).reason == "killed"

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(s.run("exec sleep 614"), 1)
        assert (await (await s.commands())[-1].wait(timeout=30)).reason == "killed"

    run(main)


def test_cancelled_cell_keeps_its_variables() -> None:
    async def main(s: AsyncSandbox) -> None:
        async with await s.code.context("c") as c:
            await c.run("x = 5")
            began = asyncio.Event()
            task = asyncio.create_task(c.run("print('begun', flush=True)\nimport time\ntime.sleep(600)",
                                             on_stdout=lambda _: began.set()))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            start = time.monotonic()
            assert (await c.run("x")).text == "5" and time.monotonic() - start < 20

    run(main)
