"""Runs the official Python client at its defaults against a daemon: its requests belong to no session. Prints a line
"PASS name" or "FAIL name why" for each check."""

import asyncio
import os
import sys
import uuid

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

URL, KEY = os.environ["BERTH_URL"], os.environ["BERTH_API_KEY"]
HEADERS = {"Authorization": "Bearer " + KEY}
MIB = 1 << 20


def over_http(**options):
    http = httpx2.AsyncClient(headers=HEADERS, timeout=60)
    return Client(streamable_http_client(URL + "/mcp", http_client=http), **options)


def over_pipes(**options):
    return Client(stdio_client(StdioServerParameters(
        command=os.environ["BERTH_BINARY"], args=["mcp"], env={**os.environ, "BERTH_HOST": URL})), **options)


def text_of(result):
    return "".join(c.text for c in result.content if c.type == "text")


async def tools(client, box):
    assert client.protocol_version == "2026-07-28", client.protocol_version
    for tool in (await client.list_tools()).tools:
        if "container" in tool.input_schema["properties"]:
            assert "container" in tool.input_schema["required"], tool
    result = await client.call_tool("bash", {"command": "true"})
    assert result.is_error and "container is missing" in text_of(result), result


async def shell(client, box):
    await client.call_tool("bash", {"container": box, "command": "cd /tmp && word=kept"})
    result = await client.call_tool("bash", {"container": box, "command": "pwd; echo $word"})
    assert text_of(result) == "/tmp\nkept\n", result


async def generations(client, box):
    """A client of sessions has the same container by its name."""
    async with over_http(mode="legacy") as old:
        result = await old.call_tool("bash", {"container": box, "command": "echo $word"})
        assert text_of(result) == "kept\n", result
        assert box in text_of(await old.call_tool("list_containers", {}))
    assert box in text_of(await client.call_tool("list_containers", {}))


async def progress(client, box):
    heard = []

    async def hear(progress, total, message):
        heard.append(message)

    await client.call_tool("bash", {"container": box, "command": "for i in 1 2 3; do echo line $i; sleep 0.3; done"},
                           progress_callback=hear)
    assert "".join(heard) == "line 1\nline 2\nline 3\n" and len(heard) > 1, heard


async def cancel(client, box):
    begun = asyncio.Event()

    async def hear(progress, total, message):
        begun.set()

    command = "while :; do date +%s%N >/tmp/alive; echo alive; sleep 0.05; done"
    task = asyncio.create_task(client.call_tool("bash", {"container": box, "command": command}, progress_callback=hear))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # The command has ended if it writes nothing for ten times its write interval.
    look = {"container": box,
            "code": "import time\na = open('/tmp/alive').read()\ntime.sleep(0.5)\na == open('/tmp/alive').read()"}
    for _ in range(20):
        if text_of(await client.call_tool("run_code", look)) == "True":
            return
    raise AssertionError("it goes on")


async def files(client, box):
    result = await client.call_tool("bash", {"container": box, "command": "echo made >$OUTPUT_DIR/made.txt; echo ä >ä"})
    link = next(c for c in result.content if c.type == "resource_link")
    assert (await client.read_resource(link.uri)).contents[0].text == "made\n"
    try:
        await client.read_resource("berth://files/file_nope")
    except MCPError as err:
        assert "file_nope" in str(err), err
    else:
        raise AssertionError("a file that is not there was read")


async def large(client, box):
    """An answer of more than a client takes is cut."""
    for streamed in (False, True):
        async def hear(progress, total, message):
            pass

        result = await client.call_tool("bash", {"container": box, "command": f"yes 0123456789 | head -c {4 * MIB}"},
                                        progress_callback=hear if streamed else None)
        assert "bytes left out" in text_of(result) and MIB // 8 < len(text_of(result)) < MIB, len(text_of(result))
    await client.call_tool("bash", {"container": box, "command": f"head -c {4 * MIB} /dev/zero >/workspace/large"})
    ref = next(line for line in text_of(await client.call_tool("list_containers", {})).splitlines() if box in line)
    content = (await client.read_resource(f"berth://containers/{ref.split()[0]}/workspace/large")).contents[0]
    assert len(content.blob) > 4 * MIB, content


async def changes(client, box):
    """A client that listens is told that its tools have changed."""
    name = "t" + uuid.uuid4().hex[:10]
    async with client.listen(tools_list_changed=True) as heard, httpx2.AsyncClient(headers=HEADERS, timeout=60) as http:
        assert heard.honored.tools_list_changed, heard.honored
        made = await http.post(URL + "/v1/tools", json={
            "name": name, "tool_type": "code_runner",
            "configuration": {"type": "CodeRunner", "runtime": "python", "code": "def run(input): return 1"}})
        assert made.status_code == 201, made.text
        await anext(aiter(heard))
        assert name in [t.name for t in (await client.list_tools()).tools]
        await http.delete(URL + "/v1/tools/" + name)


async def delete(client, box):
    await client.call_tool("delete_container", {"container": box})
    assert box not in text_of(await client.call_tool("list_containers", {}))


async def main():
    everything = (tools, shell, generations, progress, cancel, files, large, changes, delete)
    bridged = (tools, shell, progress, cancel, files, large, changes, delete)
    for way, open_client, checks in (("http", over_http, everything), ("stdio", over_pipes, bridged)):
        box = "work-" + uuid.uuid4().hex[:10]
        async with open_client() as client:
            for check in checks:
                try:
                    await asyncio.wait_for(check(client, box), 60)
                    print(f"PASS {way}/{check.__name__}", flush=True)
                except BaseException as err:
                    print(f"FAIL {way}/{check.__name__}", repr(err).replace("\n", " | ")[:2000], flush=True)


asyncio.run(main())
sys.exit(0)
