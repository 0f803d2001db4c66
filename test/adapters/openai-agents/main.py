"""Has OpenAI's Agents SDK work in containers: its sessions by themselves, and agents with a scripted model."""

import asyncio
import http.client
import io
import json
import os
import pathlib
import re
import tempfile
from pathlib import Path

from agents import Model, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.run_state import RunState
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig, User
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import Dir, File, InContainerMountStrategy, RcloneMountPattern, S3Mount
from agents.sandbox.errors import (
    ExecTimeoutError, ExecTransportError, ExposedPortUnavailableError, InvalidManifestPathError, MountConfigError,
    WorkspaceArchiveWriteError, WorkspaceReadNotFoundError,
)
from agents.sandbox.snapshot import LocalSnapshotSpec
from berth import AsyncClient, NotFoundError
from berth_openai_agents import BerthSandboxClient, BerthSandboxClientOptions
from openai.types.responses import (
    ResponseCustomToolCall, ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText,
)

set_tracing_disabled(True)  # traces go to OpenAI

MANIFEST = Manifest(
    entries={"notes.txt": File(content=b"from the manifest\n"), "old": Dir(children={"a.txt": File(content=b"a")})},
    environment={"value": {"CITY": "Bern"}})


async def raises(kind, awaitable):
    try:
        await awaitable
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


async def commands(session):
    ran = await session.exec("echo out; echo err >&2; exit 3")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (3, b"out\n", b"err\n"), ran.__dict__
    ran = await session.exec("printf '%s %s %s ' \"$CITY\" \"$GREETING\" \"$PWD\"; cat notes.txt")
    assert ran.stdout == b"Bern hello /workspace from the manifest\n", ran.__dict__
    ran = await session.exec("printf '\\377\\000\\376'; head -c 3000000 /dev/zero")
    assert ran.stdout == b"\xff\0\xfe" + bytes(3000000), ran.stdout[:20]
    assert (await session.exec("id", "-un", shell=False, user="root")).stdout == b"root\n"
    assert (await session.exec("id", "-un", shell=False)).stdout == b"user\n"
    assert (await session.exec("id", "-un", shell=False, user=User(name="alice"))).stdout == b"alice\n"
    error = await raises(ExecTimeoutError, session.exec("sleep 60", timeout=0.3))
    assert error.timeout_s == 0.3
    error = await raises(ExecTransportError, session.exec("no-such-program", shell=False))
    assert "no-such-program" in str(error), error


async def files(session):
    data = bytes(range(256)) * 4096
    await session.mkdir(Path("data"), parents=True)
    await session.write(Path("data/blob"), io.BytesIO(data))
    assert (await session.read(Path("data/blob"))).read() == data
    assert await session.read_bounded(Path("data/blob"), max_bytes=1000) == data[:1000]
    assert "blob" in {entry.path.rsplit("/", 1)[-1] for entry in await session.ls("data")}
    await session.rm(Path("data/blob"))
    assert (await session.exec("test -e data/blob")).exit_code != 0
    await raises(WorkspaceReadNotFoundError, session.read(Path("data/blob")))
    await raises(InvalidManifestPathError, session.read(Path("/etc/passwd")))
    await session.exec("ln -s /etc link")
    await raises(InvalidManifestPathError, session.write(Path("link/x"), io.BytesIO(b"")))
    await raises(WorkspaceArchiveWriteError, session.write(Path("hers"), io.BytesIO(b""), user="alice"))
    await session.exec("mkdir -m 777 shared")
    await session.write(Path("shared/hers"), io.BytesIO(b"hers"), user="alice")
    assert (await session.exec("stat -c %U shared/hers")).stdout == b"alice\n"
    await session.exec("rm -f link; mkdir shut; chmod 500 shut")
    error = await raises(WorkspaceArchiveWriteError, session.write(Path("shut/x"), io.BytesIO(b"")))
    assert "permission denied" in str(error), error


async def processes(session):
    update = await session.pty_exec_start("python3", "-i", "-q", shell=False, tty=True, yield_time_s=3)
    assert update.process_id is not None and update.exit_code is None, update
    id, output = update.process_id, update.output
    update = await session.pty_write_stdin(session_id=id, chars="print(6 * 7, 'seen')\n", yield_time_s=3)
    assert b"42 seen" in output + update.output, update
    update = await session.pty_write_stdin(session_id=id, chars="exit(5)\n", yield_time_s=20)
    assert update.exit_code == 5 and update.process_id is None, update

    update = await session.pty_exec_start("echo begun; sleep 2; echo over; exit 4", yield_time_s=0.5)
    assert update.process_id is not None, update
    output = update.output
    update = await session.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=20)
    assert output + update.output == b"begun\nover\n" and update.exit_code == 4, update
    update = await session.pty_exec_start("id -un; printenv CITY", user="alice", yield_time_s=20)
    assert update.output == b"alice\nBern\n" and update.exit_code == 0, update
    update = await session.pty_exec_start("exec -a left-behind sleep 300", shell=["bash", "-c"], yield_time_s=0.3)
    await session.pty_terminate_all()
    assert b"left-behind" not in (await session.exec("ps -ef")).stdout


def fetch(end):
    connection = http.client.HTTPConnection("127.0.0.1", end.port, timeout=30)
    connection.request("POST", f"/?{end.query}", headers={"Host": f"{end.host}:{end.port}"})
    return connection.getresponse().read()


SERVER = """
from http.server import *
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'hello from the port')
HTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
"""


async def port(session):
    await session.write(Path("server.py"), io.BytesIO(SERVER.encode()))
    await session.exec("(setsid python3 server.py >/dev/null 2>&1 &) ; for i in $(seq 100); do "
                       "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null && "
                       "break; sleep 0.1; done")
    end = await session.resolve_exposed_port(8000)
    assert await asyncio.to_thread(fetch, end) == b"hello from the port", end
    await raises(ExposedPortUnavailableError, session.resolve_exposed_port(8001))


async def session_work():
    async with BerthSandboxClient() as client:
        manifest = MANIFEST.model_copy(update={"users": [User(name="alice")]})
        session = await client.create(manifest=manifest, options=BerthSandboxClientOptions(
            env={"GREETING": "hello"}, exposed_ports=(8000,), labels={"made": "by the test"}))
        async with session:
            await commands(session)
            await files(session)
            await processes(session)
            await port(session)
            id = session.state.sandbox_id
        async with AsyncClient() as berth:
            await raises(NotFoundError, berth.sandboxes.get(id))
        elsewhere = Manifest(root="/srv/work", entries={"a.txt": File(content=b"a")})
        async with await client.create(manifest=elsewhere) as session:
            assert (await session.exec("pwd; cat a.txt")).stdout == b"/srv/work\na"


async def again(client, session):
    """Resumes a session from what another process would have of it."""
    return await client.resume(client.deserialize_session_state(json.loads(json.dumps(
        client.serialize_session_state(session.state)))))


async def resume_elsewhere(persistence, snapshots):
    """The container is gone; another one gets the workspace."""
    options = BerthSandboxClientOptions(workspace_persistence=persistence)
    async with BerthSandboxClient() as client:
        session = await client.create(
            manifest=MANIFEST, snapshot=LocalSnapshotSpec(base_path=Path(snapshots)), options=options)
        for turn in range(3):
            async with session:
                if turn:
                    assert (await session.read(Path("kept.txt"))).read() == f"kept {turn - 1}".encode()
                    assert (await session.exec("stat -c '%a %U' of-root")).stdout == b"600 root\n"
                    # A snapshot has the whole container, a tar the workspace.
                    installed = (await session.exec("cat /opt/installed")).stdout
                    assert installed == (b"yes" if persistence == "snapshot" else b""), installed
                await session.exec("echo changed >notes.txt; umask 77; : >of-root", user="root")
                await session.exec("printf yes >/opt/installed", user="root")
                await session.write(Path("kept.txt"), io.BytesIO(f"kept {turn}".encode()))
                first = session.state.sandbox_id
            session = await again(client, session)
            assert session.state.sandbox_id != first
        async with session:
            assert (await session.exec("cat notes.txt")).stdout == b"changed\n"
        kept = await client._client.snapshots.list(labels={"openai-agents-session": session.state.session_id.hex})
        assert len(kept) == (2 if persistence == "snapshot" else 0), kept
        for snapshot in kept:
            await client._client.snapshots.delete(snapshot.id)


async def resume_in_place():
    """The process died, or the session was paused at its end: the same container goes on."""
    async with BerthSandboxClient() as client:
        session = await client.create(manifest=MANIFEST)
        await session.start()
        await session.exec("echo changed >notes.txt")
        second = await again(client, session)
        async with second:
            assert second.state.sandbox_id == session.state.sandbox_id
            assert (await second.exec("cat notes.txt")).stdout == b"changed\n"

        session = await client.create(manifest=MANIFEST, options=BerthSandboxClientOptions(pause_on_exit=True))
        async with session:
            await session.exec("(setsid sleep 1000 >/dev/null 2>&1 &)")
        async with AsyncClient() as berth:
            sandbox = await berth.sandboxes.get(session.state.sandbox_id)
            assert sandbox.info.state == "paused", sandbox.info
            second = await again(client, session)
            async with second:
                assert b"sleep 1000" in (await second.exec("ps -ef")).stdout
                assert await second.running()
            await sandbox.delete()
            assert not await second.running()


async def errors():
    async with BerthSandboxClient() as client:
        error = await raises(MountConfigError, client.create(manifest=Manifest(entries={
            "data": S3Mount(bucket="b", mount_strategy=InContainerMountStrategy(pattern=RcloneMountPattern()))})))
        assert "LocalDir" in str(error), error
        await raises(NotFoundError, client.create(options=BerthSandboxClientOptions(image="no-such-image")))
        session = await client.create()
        async with session:
            async with AsyncClient() as berth:
                await (await berth.sandboxes.get(session.state.sandbox_id)).delete()
            error = await raises(ExecTransportError, session.exec("true"))
            assert session.state.sandbox_id in str(error) and not error.retryable, error
        error = await raises(WorkspaceArchiveWriteError, session.hydrate_workspace(io.BytesIO(b"no tar")))
        assert "refused" in str(error), error


class Scripted(Model):
    """A model that calls tools as its script says, and then ends with the results of all."""

    def __init__(self, *script):
        self.script = script

    async def get_response(self, system_instructions, input, model_settings, tools, *_, **__):
        items = [] if isinstance(input, str) else input
        results = [i["output"] for i in items if str(i.get("type")).endswith("call_output")]
        if len(results) < len(self.script):
            name, given = self.script[len(results)]
            assert name in {t.name for t in tools}, (name, [t.name for t in tools])
            id = f"call_{len(results)}"
            if isinstance(given, str):
                call = ResponseCustomToolCall(type="custom_tool_call", call_id=id, name=name, input=given)
            else:
                call = ResponseFunctionToolCall(
                    type="function_call", call_id=id, name=name, arguments=json.dumps(given))
            output = [call]
        else:
            text = json.dumps(results)
            content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
            output = [ResponseOutputMessage(
                id="message", type="message", role="assistant", status="completed", content=content)]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


PATCH = """*** Begin Patch
*** Update File: mean.py
@@
-print(sum(degrees) / len(degrees))
+print(max(degrees))
*** Add File: report.md
+The maximum is 19.
*** End Patch
"""
PROGRAM = """import csv
degrees = [int(row["degrees"]) for row in csv.DictReader(open("cities.csv"))]
print(sum(degrees) / len(degrees))
"""
WAIT = {"yield_time_ms": 30000}  # a command that ends sooner is not waited for longer


async def agent_run():
    """An agent calls the SDK's own tools; what it made is read back."""
    model = Scripted(
        ("exec_command", {"cmd": f"cat >mean.py <<'END'\n{PROGRAM}END\npython3 mean.py", **WAIT}),
        ("apply_patch", PATCH),
        ("exec_command", {"cmd": "python3 mean.py; ls no-such-file", **WAIT}),
        ("exec_command", {"cmd": "read -p 'name? ' name; echo hello $name", "tty": True, "yield_time_ms": 3000,
                          "shell": "bash"}),
    )
    agent = SandboxAgent(name="analyst", model=model, default_manifest=Manifest(
        entries={"cities.csv": File(content=b"city,degrees\nOslo,4\nLima,19\n")}))
    async with BerthSandboxClient() as client, await client.create(manifest=agent.default_manifest) as session:
        result = await Runner.run(agent, "Find the maximum.", run_config=RunConfig(
            sandbox=SandboxRunConfig(session=session)))
        outputs = json.loads(result.final_output)
        assert "11.5" in outputs[0] and "code 0" in outputs[0], outputs[0]
        assert "19" in outputs[2] and "no-such-file" in outputs[2] and "code 2" in outputs[2], outputs[2]
        assert "name?" in outputs[3] and "session ID" in outputs[3], outputs[3]
        assert (await session.read(Path("report.md"))).read().strip() == b"The maximum is 19."
        running = int(re.search(r"session ID (\d+)", outputs[3])[1])
        more = Scripted(("write_stdin", {"session_id": running, "chars": "you\n", **WAIT}))
        result = await Runner.run(SandboxAgent(name="analyst", model=more), "Answer.", run_config=RunConfig(
            sandbox=SandboxRunConfig(session=session)))
        assert "hello you" in result.final_output and "code 0" in result.final_output, result.final_output


def approved(model):
    def ask(tools):
        tools.exec_command.needs_approval = True
    return SandboxAgent(name="careful", model=model, capabilities=[Filesystem(), Shell(configure_tools=ask)])


async def agent_resumed(persistence, snapshots):
    """A run waits for approval of a command. Another process goes on with it, with the files of the first half."""
    model = Scripted(("apply_patch", "*** Begin Patch\n*** Add File: plan.md\n+count\n*** End Patch\n"),
                     ("exec_command", {"cmd": "wc -l plan.md", **WAIT}),
                     ("exec_command", {"cmd": "echo again; cat plan.md", **WAIT}))
    labels = {"made-by": "agent_resumed"}
    options = BerthSandboxClientOptions(workspace_persistence=persistence, labels=labels)

    def config(client):
        return RunConfig(sandbox=SandboxRunConfig(
            client=client, options=options, snapshot=LocalSnapshotSpec(base_path=Path(snapshots))))

    agent = approved(model)
    async with BerthSandboxClient() as client:
        result = await Runner.run(agent, "Count.", run_config=config(client))
    for _ in range(2):
        assert len(result.interruptions) == 1, result
        kept = json.dumps(result.to_state().to_json())
        agent = approved(model)
        state = await RunState.from_json(agent, json.loads(kept))
        state.approve(state.get_interruptions()[0])
        async with BerthSandboxClient() as client:
            result = await Runner.run(agent, state, run_config=config(client))
    outputs = json.loads(result.final_output)
    assert " plan.md" in outputs[1] and "again\ncount" in outputs[2], outputs
    async with AsyncClient() as berth:
        for snapshot in await berth.snapshots.list():
            if "openai-agents-session" in (snapshot.labels or {}):
                await berth.snapshots.delete(snapshot.id)
        assert not await berth.sandboxes.list(labels=labels), "a run left a container"


def readme():
    """The example of the README, with the scripted model."""
    text = pathlib.Path(os.environ["BERTH_ADAPTER"], "README.md").read_text()
    example, = re.findall(r"```python\n(.*?)```", text, re.S)
    source, count = re.subn(r'model="[^"]+"', "model=MODEL", example)
    assert count == 1
    pathlib.Path("data.csv").write_text("city,degrees\nOslo,4\n")
    exec(compile(source, "README.md", "exec"), {"MODEL": Scripted(
        ("exec_command", {"cmd": "tail -1 data.csv >report.md", **WAIT}))})
    assert pathlib.Path("report.md").read_text() == "Oslo,4\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as snapshots:
        parts = [(session_work,), (errors,), (resume_in_place,), (resume_elsewhere, "tar", snapshots),
                 (resume_elsewhere, "snapshot", snapshots), (agent_run,), (agent_resumed, "tar", snapshots),
                 (agent_resumed, "snapshot", snapshots)]
        for part, *given in parts:
            print(part.__name__, *given[:1], flush=True)
            asyncio.run(part(*given))
    print("readme", flush=True)
    readme()
    print("done")
