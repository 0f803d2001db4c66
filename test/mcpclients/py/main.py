"""Runs the official Python client in a session with a daemon. Prints a line "PASS name" or "FAIL name why" for each check."""

import asyncio
import base64
import os
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

URL, KEY = os.environ["BERTH_URL"], os.environ["BERTH_API_KEY"]


def over_http():
    http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + KEY}, timeout=60)
    return Client(streamable_http_client(URL + "/mcp", http_client=http), mode="legacy")


def over_pipes():
    return Client(stdio_client(StdioServerParameters(
        command=os.environ["BERTH_BINARY"], args=["mcp"], env={**os.environ, "BERTH_HOST": URL})), mode="legacy")


def text_of(result):
    return "".join(c.text for c in result.content if c.type == "text")


async def tools(client):
    names = [t.name for t in (await client.list_tools()).tools]
    assert {"bash", "run_code", "code_executor", "str_replace_based_edit_tool"} <= set(names), names


async def shell(client):
    await client.call_tool("bash", {"command": "cd /tmp && word=kept"})
    result = await client.call_tool("bash", {"command": "pwd; echo $word"})
    assert text_of(result) == "/tmp\nkept\n", result


async def progress(client):
    heard = []

    async def hear(progress, total, message):
        heard.append(message)

    await client.call_tool("bash", {"command": "for i in 1 2 3; do echo line $i; sleep 0.3; done"},
                           progress_callback=hear)
    assert "".join(heard) == "line 1\nline 2\nline 3\n" and len(heard) > 1, heard


async def cancel(client):
    begun = asyncio.Event()

    async def hear(progress, total, message):
        begun.set()

    command = "while :; do date +%s%N >/tmp/alive; echo alive; sleep 0.05; done"
    task = asyncio.create_task(client.call_tool("bash", {"command": command}, progress_callback=hear))
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # The command has ended if it writes nothing for ten times its write interval.
    look = {"code": "import time\na = open('/tmp/alive').read()\ntime.sleep(0.5)\na == open('/tmp/alive').read()"}
    for _ in range(20):
        if text_of(await client.call_tool("run_code", look)) == "True":
            return
    raise AssertionError("it goes on")


async def code(client):
    result = await client.call_tool("run_code", {"code": "import pandas as pd\npd.DataFrame({'a': [1, 2]})"})
    assert "0  1" in result.structured_content["results"][0], result
    assert any("text/html" in bundle for bundle in result.structured_content["rich"]), result
    failed = await client.call_tool("run_code", {"code": "print('kept')\n1/0"})
    assert failed.is_error and failed.structured_content["logs"]["stdout"] == ["kept\n"], failed
    figure = await client.call_tool("run_code", {"code": "import matplotlib.pyplot as plt\nplt.plot([1])\nNone"})
    image = next(c for c in figure.content if c.type == "image")
    assert base64.b64decode(image.data).startswith(b"\x89PNG"), image


async def executor(client):
    result = await client.call_tool("code_executor", {"language": "python", "code": "print('hi')"})
    assert text_of(result).startswith("## Code Execution Result\n") and "hi\n" in text_of(result), result


async def files(client):
    result = await client.call_tool("bash", {"command": "echo made >$OUTPUT_DIR/made.txt"})
    link = next(c for c in result.content if c.type == "resource_link")
    assert (await client.read_resource(link.uri)).contents[0].text == "made\n"
    try:
        await client.read_resource("berth://files/file_nope")
    except MCPError as err:
        assert "file_nope" in str(err), err
    else:
        raise AssertionError("a file that is not there was read")


async def mistakes(client):
    result = await client.call_tool("bash", {"command": 7})
    assert result.is_error and "command" in text_of(result), result


async def main():
    everything = (tools, shell, progress, cancel, code, executor, files, mistakes)
    bridged = (tools, shell, progress, cancel, files)  # what a bridge could get wrong
    for way, open_client, checks in (("http", over_http, everything), ("stdio", over_pipes, bridged)):
        async with open_client() as client:
            for check in checks:
                try:
                    await asyncio.wait_for(check(client), 60)
                    print(f"PASS {way}/{check.__name__}", flush=True)
                except BaseException as err:
                    print(f"FAIL {way}/{check.__name__}", repr(err).replace("\n", " | "), flush=True)


asyncio.run(main())
sys.exit(0)
