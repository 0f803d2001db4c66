"""Works in a sandbox through the E2B client of OpenAI's Agents SDK."""

import asyncio
import io
import tempfile
import urllib.request
from pathlib import Path

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest
from agents.sandbox.entries import File
from agents.sandbox.snapshot import LocalSnapshotSpec


async def commands(session):
    ran = await session.exec("echo out; echo err >&2; exit 3")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (3, b"out\n", b"err\n"), ran.__dict__
    ran = await session.exec("printf '%s %s' \"$CITY\" \"$PWD\"; cat notes.txt")
    assert ran.stdout == b"Bern /workspacefrom the manifest\n", ran.__dict__


async def files(session):
    data = bytes(range(256)) * 4096
    await session.mkdir(Path("data"), parents=True)
    await session.write(Path("data/blob"), io.BytesIO(data))
    assert (await session.read(Path("data/blob"))).read() == data
    names = {entry.path.rsplit("/", 1)[-1] for entry in await session.ls("data")}
    assert "blob" in names, names
    ran = await session.exec("wc -c <data/blob")
    assert ran.stdout.strip() == str(len(data)).encode(), ran.__dict__
    await session.rm(Path("data/blob"))
    assert (await session.exec("test -e data/blob")).exit_code != 0


async def terminal(session):
    update = await session.pty_exec_start("python3", "-i", "-q", shell=False, tty=True, yield_time_s=3)
    assert update.process_id is not None and update.exit_code is None, update
    id, output = update.process_id, update.output
    update = await session.pty_write_stdin(session_id=id, chars="print(6 * 7, 'seen')\n", yield_time_s=3)
    output += update.output
    assert b"42 seen" in output, output
    await session.pty_write_stdin(session_id=id, chars="exit(5)\n", yield_time_s=3)
    update = await session.pty_write_stdin(session_id=id, chars="exit $?\n", yield_time_s=10)  # of the shell around it
    assert update.exit_code == 5 and update.process_id is None, update


async def port(session):
    await session.write(Path("index.html"), io.BytesIO(b"hello from the port"))
    await session.exec("(setsid python3 -m http.server 8000 >/dev/null 2>&1 &) ; for i in $(seq 100); do "
                       "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null && "
                       "break; sleep 0.1; done")
    end = await session.resolve_exposed_port(8000)  # with tls=False, since the domain has a port
    url = f"https://{end.host}:{end.port}/"
    body = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
    assert body == b"hello from the port", body


async def main(persistence, snapshots):
    client = E2BSandboxClient()
    manifest = Manifest(root="/workspace", entries={"notes.txt": File(content=b"from the manifest\n")},
                        environment={"value": {"CITY": "Bern"}})
    options = E2BSandboxClientOptions(sandbox_type="e2b", timeout=180, exposed_ports=(8000,),
                                      workspace_persistence=persistence)
    session = await client.create(manifest=manifest, snapshot=LocalSnapshotSpec(base_path=Path(snapshots)),
                                  options=options)
    async with session:
        await commands(session)
        await files(session)
        await terminal(session)
        await port(session)
        await session.write(Path("kept.txt"), io.BytesIO(b"kept"))
    # The sandbox is gone; another one gets the workspace.
    first = session.state.sandbox_id
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    session = await client.resume(state)
    async with session:
        assert session.state.sandbox_id != first
        assert (await session.read(Path("kept.txt"))).read() == b"kept"
        assert (await session.exec("cat notes.txt")).stdout == b"from the manifest\n"


for persistence in ("tar", "snapshot"):
    with tempfile.TemporaryDirectory() as snapshots:
        asyncio.run(main(persistence, snapshots))
print("done")
