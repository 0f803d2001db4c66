"""Has an official Python client, of either generation of the SDK, get large answers. Prints a line "PASS name" or
"FAIL name why" for each check."""

import asyncio
import base64
import contextlib
import json
import os
import re
import sys

import mcp.client.streamable_http as transport
from mcp import ClientSession, StdioServerParameters, stdio_client

URL, KEY = os.environ["BERTH_URL"], os.environ["BERTH_API_KEY"]
MIB = 1 << 20


@contextlib.asynccontextmanager
async def over_http():
    headers = {"X-Api-Key": KEY}
    if hasattr(transport, "streamablehttp_client"):  # generation 1
        opened = transport.streamablehttp_client(URL + "/mcp", headers=headers)
    else:
        client = transport.create_mcp_http_client(headers=headers)
        opened = transport.streamable_http_client(URL + "/mcp", http_client=client)
    async with opened as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        yield session


@contextlib.asynccontextmanager
async def over_pipes():
    params = StdioServerParameters(command=os.environ["BERTH_BINARY"], args=["mcp"],
                                   env={**os.environ, "BERTH_HOST": URL})
    async with stdio_client(params) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        yield session


def dumped(result):
    return result.model_dump(mode="json", by_alias=True)


def encoded(value):
    return len(json.dumps(value, ensure_ascii=False).encode())


def text_of(result):
    return "".join(c.text for c in result.content if c.type == "text")


def links_of(result):
    return [c for c in result.content if c.type == "resource_link"]


async def call(session, name, args, streamed=False):
    async def hear(progress, total, message):
        pass

    result = await session.call_tool(name, args, progress_callback=hear if streamed else None)
    assert encoded(dumped(result)) <= MIB, "the answer is too large"
    return result


async def printed(session, size):
    """Text of a command and of code is cut, with the mark."""
    for shown, char in (("x", "x"), ("ä", "ä"), ("\\x01", "\x01"), ("\\n", "\n")):
        for streamed in (False, True):
            got = text_of(await call(session, "bash", {
                "command": f"python3 -c \"import sys; sys.stdout.write('{shown}' * ({size} // {len(char.encode())}))\""},
                streamed))
            (dropped,) = re.findall(r"\n\[output truncated: (\d+) bytes left out\]\n", got)
            left = len(got.encode()) - len(f"\n[output truncated: {dropped} bytes left out]\n")
            assert left > MIB // 8 and left + int(dropped) == size, (char, left, dropped)
    result = await call(session, "run_code", {"code": f"print('a' * {size})"}, streamed)
    assert "output truncated" in text_of(result), text_of(result)[:100]
    assert encoded(dumped(result)["structuredContent"]) < MIB // 4, "the output is told twice"


async def viewed(session, size):
    """A text is cut, and a picture is a link."""
    await call(session, "bash", {"command": f"cd /workspace; yes 0123456789 | head -c {size} >big.txt; "
                                            f"(printf '\\x89PNG\\r\\n\\x1a\\n'; head -c {size - 8} /dev/urandom) >big.png"})
    got = text_of(await call(session, "str_replace_based_edit_tool", {"command": "view", "path": "/workspace/big.txt"}))
    assert "bytes left out" in got, got[:100]
    result = await call(session, "str_replace_based_edit_tool", {"command": "view", "path": "/workspace/big.png"})
    (link,) = links_of(result)
    assert link.name == "big.png" and link.size == size and "read" in text_of(result), result
    await read(session, str(link.uri), size)
    await read(session, (await where(session)) + "/workspace/big.txt", size)
    result = await call(session, "download_file", {"path": "big.txt"})
    await read(session, str(links_of(result)[0].uri), size)


async def where(session):
    result = await session.call_tool("bash", {"command": "true"})
    return "berth://containers/" + dumped(result)["_meta"]["berth/container"]["id"]


def bytes_of(result):
    (content,) = result.contents
    return content.text.encode() if hasattr(content, "text") else base64.b64decode(content.blob)


async def read(session, uri, size):
    """A resource can be read at once up to 4 MiB, and in ranges."""
    whole = bytes_of(await session.read_resource(uri))
    assert len(whole) == size, (len(whole), size)
    parts = b""
    while len(parts) < size:
        parts += bytes_of(await session.read_resource(f"{uri}?offset={len(parts)}&length=700001"))
    assert parts == whole, "the ranges differ from the whole"
    assert bytes_of(await session.read_resource(f"{uri}?offset={size}")) == b"", "there is more after the end"


async def larger(session, _):
    """What is larger than that is refused with the way to read it."""
    await call(session, "bash", {"command": "head -c 5M /dev/zero >/workspace/larger"})
    uri = (await where(session)) + "/workspace/larger"
    try:
        await session.read_resource(uri)
        raise AssertionError("5 MiB were read at once")
    except Exception as err:
        hint = re.search(r"berth://\S+", str(err).split("such as")[1])[0]
    assert len(bytes_of(await session.read_resource(hint))) == 4 * MIB


async def figures(session, size):
    """Pictures of code that do not fit together are links."""
    code = ("import base64, os\nclass P:\n  def __init__(s, n): s.n = n\n"
            "  def _repr_png_(s): return b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(s.n)\n"
            "  def _repr_html_(s): return '<b>' * s.n\n"
            f"display(P(1000)); display(P({size})); P({size})")
    result = await call(session, "run_code", {"code": code})
    kinds = [c.type for c in result.content]
    assert kinds.count("image") == 1 and len(links_of(result)) >= 2, kinds
    for link in links_of(result):
        await session.read_resource(str(link.uri) + "?offset=0&length=100")


async def main():
    for way, opened, sizes in (("http", over_http, (1, 2, 4)), ("stdio", over_pipes, (4,))):
        async with opened() as session:
            for check, of in ((printed, sizes), (viewed, sizes), (figures, sizes), (larger, (5,))):
                for mib in of:
                    try:
                        await asyncio.wait_for(check(session, mib * MIB), 60)
                        print(f"PASS {way}/{check.__name__}-{mib}MiB", flush=True)
                    except BaseException as err:
                        print(f"FAIL {way}/{check.__name__}-{mib}MiB", repr(err).replace("\n", " | ")[:2000], flush=True)


asyncio.run(main())
sys.exit(0)
