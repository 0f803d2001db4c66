"""berth containers as sandboxes of OpenAI's Agents SDK.

    async with BerthSandboxClient() as client:
        run_config = RunConfig(sandbox=SandboxRunConfig(client=client))
        result = await Runner.run(SandboxAgent(name="…", model="…"), "…", run_config=run_config)

The agent's tools for commands, patches and images then work in a container.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from agents.sandbox import Manifest
from agents.sandbox.errors import (
    ExecNonZeroError, ExecTimeoutError, ExecTransportError, ExposedPortUnavailableError, MountConfigError,
    SandboxError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError, WorkspaceReadNotFoundError,
    WorkspaceStartError, WorkspaceWriteTypeError,
)
from agents.sandbox.session import (
    BaseSandboxClient, BaseSandboxClientOptions, BaseSandboxSession, Dependencies, Instrumentation, SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.session.bounded_read import collect_bounded
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX, PtyExecUpdate, allocate_pty_process_id, clamp_pty_yield_time_ms, process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from agents.sandbox.workspace_paths import coerce_posix_path, posix_path_as_path, sandbox_path_str
from berth import (
    AsyncClient, AsyncCommand, AsyncPty, AsyncSandbox, BerthError, Chunk, CommandResult, ConflictError, ExpiredError,
    NotFoundError, PermissionDeniedError, TooManyRequestsError, UnavailableError,
)

__all__ = ["BerthSandboxClient", "BerthSandboxClientOptions", "BerthSandboxSession", "BerthSandboxSessionState"]

LONGEST = 86400.0  # seconds of a command without a limit; the most that the daemon takes
YIELD = 10.0  # seconds that a started command is followed, and
YIELD_INPUT = 0.25  # seconds that it is followed after input, if the agent does not say
REFERENCE = b"BERTH_SNAPSHOT_V1\n"  # begins a workspace that is kept as a snapshot of the daemon
ACCOUNTS = ("groupadd", "useradd", "usermod", "chgrp")  # what the SDK runs for a manifest's users; root alone may

logger = logging.getLogger(__name__)


class BerthSandboxClientOptions(BaseSandboxClientOptions):
    """How the containers of a run are made. Everything here is part of a serialized session, so it holds no secret."""

    type: Literal["berth"] = "berth"
    image: str | None = None
    """Name from the daemon's list of images; the default is base."""
    env: dict[str, str] | None = None
    """Environment of every command, below that of the manifest."""
    limits: dict[str, Any] | None = None
    """cpus, memory_bytes, pids, disk_bytes and open_files."""
    network: str | dict[str, Any] | None = None
    """What a container may reach: a mode (none, allowlist, open), or mode, allow, deny and ask. The default is none."""
    labels: dict[str, str] | None = None
    """Labels, to list containers by."""
    runtime_class: str | None = None
    """runc or gvisor; the default is the daemon's."""
    idle_timeout_seconds: int | None = None
    """Stop a container after this long without use. It keeps its files, and its next use starts it."""
    exposed_ports: tuple[int, ...] = ()
    """Ports that `resolve_exposed_port` gives a URL of."""
    exposed_port_url_ttl_s: int = 3600
    """Seconds for which such a URL is valid, 7 days at most."""
    pause_on_exit: bool = False
    """Pause the container at the end of a session in place of deleting it. Resuming finds it with its processes."""
    workspace_persistence: Literal["tar", "snapshot"] = "tar"
    """What a session's snapshot holds: a tar of the workspace, or the name of a snapshot that the daemon keeps of the
    whole container. The second costs no time for its size, has what was installed, and needs the same daemon."""


class BerthSandboxSessionState(SandboxSessionState):
    """A session as it is serialized."""

    type: Literal["berth"] = "berth"
    sandbox_id: str
    """The container's ID."""
    options: BerthSandboxClientOptions
    """With which the container is made anew if it is gone."""


@dataclass
class _Process:
    """A command that goes on while the agent does other things."""

    command: AsyncCommand
    tty: bool
    output: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None
    used: float = field(default_factory=time.monotonic)
    reader: asyncio.Task[None] | None = None


class BerthSandboxSession(BaseSandboxSession):
    """A session whose files and commands are those of a container. `BerthSandboxClient.create` makes it."""

    state: BerthSandboxSessionState

    def __init__(self, state: BerthSandboxSessionState, sandbox: AsyncSandbox, client: AsyncClient) -> None:
        self.state = state
        self._sandbox = sandbox
        self._client = client
        self._processes: dict[int, _Process] = {}

    @property
    def sandbox(self) -> AsyncSandbox:
        """The container, for what the Agents SDK has no word for, such as `fork`."""
        return self._sandbox

    # -- Life

    async def _prepare_backend_workspace(self) -> None:
        root = sandbox_path_str(self.state.manifest.root)
        try:
            await self._sandbox.files.mkdir(root)
        except PermissionDeniedError:  # outside of what the container's user may write to
            made = await self._as_root("install", "-d", "-o", "user", "-g", "user", root)
            made.check()

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    def _wrap_start_error(self, error: Exception) -> Exception:
        if not isinstance(error, BerthError):
            return error
        return WorkspaceStartError(path=self._workspace_root_path(), context=_context(error), cause=error,
                                   message=f"failed to start session: {error}", retryable=_retryable(error))

    async def running(self) -> bool:
        """Says whether the container is there. One that is stopped or paused goes on with its next use."""
        try:
            return (await self._sandbox.refresh()).state != "expired"
        except BerthError:
            return False

    async def _shutdown_backend(self) -> None:
        try:
            if not self.state.options.pause_on_exit:
                await self._sandbox.delete()
            elif (await self._sandbox.refresh()).state == "running":
                await self._sandbox.pause()
        except (NotFoundError, ExpiredError, ConflictError):
            pass  # gone, or stopped meanwhile
        except BerthError as e:
            logger.warning("the container %s stays, since it could not be ended: %s; remove it with `berth rm`",
                           self.state.sandbox_id, e)

    # -- Commands

    async def exec(self, *command: str | Path, timeout: float | None = None, shell: bool | list[str] = True,
                   user: str | User | None = None) -> ExecResult:
        """Runs a command to its end. `user` needs no sudo in the image."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(argv, timeout, user)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self._run([str(part) for part in command], timeout, None)

    async def _run(self, argv: Sequence[str], timeout: float | None, user: str | User | None) -> ExecResult:
        streams: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

        def take(chunk: Chunk) -> None:
            streams[chunk.stream].extend(chunk.data)

        try:
            result = await self._sandbox.run(
                argv, cwd=self._root(), env=await self._env(), user=_name(user), timeout_seconds=_seconds(timeout),
                on_output=take, on_output_limit="wait")
        except BerthError as e:
            raise _exec_error(argv, e) from e
        if result.reason == "timeout":
            raise ExecTimeoutError(command=argv, timeout_s=timeout)
        if result.reason in ("not_started", "lost", "host_restart", "expired", "stopped"):
            raise ExecTransportError(command=argv, context={"backend": "berth", "reason": result.reason},
                                     message=f"the command ended by {result.reason}: {result.message or result.stderr}")
        return ExecResult(stdout=bytes(streams["stdout"]), stderr=bytes(streams["stderr"]),
                          exit_code=result.return_code)

    async def _as_root(self, *command: str) -> CommandResult:
        return await self._sandbox.run(command, user="root", cwd="/", timeout_seconds=LONGEST)

    async def _exec_checked_nonzero(self, *command: str | Path) -> ExecResult:
        result = await self.exec(*command, shell=False, user="root" if command[0] in ACCOUNTS else None)
        if not result.ok():
            raise ExecNonZeroError(result, command=command)
        return result

    async def _env(self) -> dict[str, str] | None:
        return await self.state.manifest.environment.resolve() or None

    def _root(self) -> str:
        return sandbox_path_str(self.state.manifest.root)

    # -- Commands that go on

    def supports_pty(self) -> bool:
        """Says that commands may go on, with and without a terminal."""
        return True

    async def pty_exec_start(self, *command: str | Path, timeout: float | None = None, shell: bool | list[str] = True,
                             user: str | User | None = None, tty: bool = False, yield_time_s: float | None = None,
                             max_output_tokens: int | None = None) -> PtyExecUpdate:
        """Starts a command, and returns what it writes within yield_time_s seconds or up to its end."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        env, seconds = await self._env(), _seconds(timeout)
        started: AsyncCommand
        try:
            if tty:
                started = await self._sandbox.pty(
                    argv, cwd=self._root(), env=env, user=_name(user), timeout_seconds=seconds)
            else:
                started = await self._sandbox.run(
                    argv, background=True, cwd=self._root(), env=env, user=_name(user), timeout_seconds=seconds)
        except BerthError as e:
            raise _exec_error(argv, e) from e
        process = _Process(started, tty)
        process.reader = asyncio.create_task(_follow(process))
        id = allocate_pty_process_id({*self._processes})
        self._processes[id] = process
        await self._prune()
        wait = clamp_pty_yield_time_ms(int(1000 * (YIELD if yield_time_s is None else yield_time_s)))
        return await self._update(id, process, wait, max_output_tokens)

    async def pty_write_stdin(self, *, session_id: int, chars: str, yield_time_s: float | None = None,
                              max_output_tokens: int | None = None) -> PtyExecUpdate:
        """Types into a terminal, and returns what the command writes within yield_time_s seconds."""
        process = self._resolve_pty_session_entry(pty_processes=self._processes, session_id=session_id)
        if chars and not process.tty:
            raise RuntimeError("stdin is not available for this process")  # the SDK's tool knows this text
        if chars and not process.ended.is_set():
            try:
                await process.command.stdin(chars)
            except BerthError as e:
                if not process.ended.is_set():
                    raise _exec_error(["write_stdin", str(session_id)], e) from e
        process.used = time.monotonic()
        wait = resolve_pty_write_yield_time_ms(
            yield_time_ms=int(1000 * (YIELD_INPUT if yield_time_s is None else yield_time_s)), input_empty=not chars)
        return await self._update(session_id, process, wait, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        """Ends every command that goes on."""
        while self._processes:
            await _end(self._processes.popitem()[1])

    async def _update(self, id: int, process: _Process, wait_ms: int, most_tokens: int | None) -> PtyExecUpdate:
        output, tokens, ended = await collect_pty_output(
            output_chunks=process.output, output_lock=process.lock, output_notify=process.news,
            is_done=process.ended.is_set, yield_time_ms=wait_ms, max_output_tokens=most_tokens)
        if ended:
            self._processes.pop(id, None)
        return PtyExecUpdate(process_id=None if ended else id, output=output,
                             exit_code=process.exit_code if ended else None, original_token_count=tokens)

    async def _prune(self) -> None:
        if len(self._processes) <= PTY_PROCESSES_MAX:
            return
        oldest = process_id_to_prune_from_meta(
            [(id, p.used, p.ended.is_set()) for id, p in self._processes.items()])
        if oldest is not None:
            await _end(self._processes.pop(oldest))

    # -- Files

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Reads a file of the workspace."""
        place = sandbox_path_str(await self._validate_path_access(path))
        try:
            return io.BytesIO(await self._sandbox.files.read(place, user=_name(user)))
        except BerthError as e:
            raise _read_error(path, e) from e

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        place = sandbox_path_str(await self._validate_path_access(path))
        stream = self._sandbox.files.stream(place)
        try:
            return await collect_bounded(stream, max_bytes)
        except BerthError as e:
            raise _read_error(path, e) from e
        finally:
            await stream.aclose()

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Writes a file of the workspace, whole or not at all."""
        content = _content(path, data)
        place = await self._validate_path_access(path, for_write=True)
        try:
            await self._sandbox.files.write(sandbox_path_str(place), content, user=_name(user))
        except BerthError as e:
            raise WorkspaceArchiveWriteError(path=place, context=_context(e), cause=e, retryable=_retryable(e),
                                             message=f"failed to write {place}: {e}") from e

    # -- Ports

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            url = urlsplit(await self._sandbox.ports.url(
                port, expires_in_seconds=self.state.options.exposed_port_url_ttl_s))
        except BerthError as e:
            raise ExposedPortUnavailableError(
                port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable",
                context={**_context(e), "detail": str(e)}, cause=e) from e
        tls = url.scheme == "https"
        return ExposedPortEndpoint(host=url.hostname or "", port=url.port or (443 if tls else 80), tls=tls,
                                   query=url.query)

    # -- The workspace as a whole

    async def persist_workspace(self) -> io.IOBase:
        """Returns the workspace as a tar, or the name of a new snapshot of the container."""
        root, skipped = self._workspace_root_path(), self._persist_workspace_skip_relpaths()
        try:
            if self.state.options.workspace_persistence == "snapshot" and not skipped:
                return io.BytesIO(REFERENCE + json.dumps({"snapshot": await self._snapshot()}).encode())
            return io.BytesIO(await self._pack(root, skipped))
        except BerthError as e:
            raise WorkspaceArchiveReadError(path=root, context={**_context(e), "detail": str(e)}, cause=e,
                                            retryable=_retryable(e)) from e

    async def _snapshot(self) -> str:
        """Takes a snapshot, and returns its ID. Of earlier ones of this session, the last one stays: its name is still
        that of the session's own snapshot until the new one has been written there."""
        labels = {"openai-agents-session": self.state.session_id.hex}
        earlier = await self._client.snapshots.list(labels=labels)
        taken = await self._sandbox.snapshot(labels=labels)
        for old in earlier[1:]:
            await self._client.snapshots.delete(old.id)
        return taken.id

    async def _pack(self, root: Path, skipped: set[Path]) -> bytes:
        archive = f"/tmp/.berth-{uuid.uuid4().hex}.tar"
        excluded = shell_tar_exclude_args(skipped)
        packing = " ".join(["tar", "--numeric-owner", *excluded, '-C "$1" -cf "$2" .'])
        try:
            packed = await self._as_root("sh", "-c", packing, "sh", root.as_posix(), archive)
            if packed.return_code not in (0, 1):  # 1: a file changed meanwhile
                raise WorkspaceArchiveReadError(
                    path=root, context={"backend": "berth", "reason": "tar_failed", "output": packed.stderr})
            return await self._sandbox.files.read(archive, user="root")
        finally:
            await self._as_root("rm", "-f", archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Fills the workspace with what persist_workspace returned."""
        root = self._workspace_root_path()
        content = _content(root, data)
        try:
            if content.startswith(REFERENCE):
                await self._restore(root, content.removeprefix(REFERENCE))
            else:
                await self._unpack(root, content)
        except BerthError as e:
            raise WorkspaceArchiveWriteError(path=root, context=_context(e), cause=e, retryable=_retryable(e),
                                             message=f"failed to fill the workspace: {e}") from e

    async def _restore(self, root: Path, reference: bytes) -> None:
        try:
            snapshot = str(json.loads(reference)["snapshot"])
        except (ValueError, KeyError, TypeError) as e:
            raise WorkspaceArchiveWriteError(
                path=root, message="the workspace is not the name of a snapshot, although it begins like one") from e
        await self._sandbox.restore(snapshot)

    async def _unpack(self, root: Path, content: bytes) -> None:
        try:
            validate_tar_bytes(content, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as e:
            raise WorkspaceArchiveWriteError(
                path=root, context={"reason": "unsafe_or_invalid_tar", "member": e.member}, cause=e,
                message=f"the tar of the workspace is refused: {e}") from e
        archive = f"/tmp/.berth-{uuid.uuid4().hex}.tar"
        try:
            await self._sandbox.files.write(archive, content, user="root", mode=0o600)
            unpacked = await self._as_root(
                "tar", "--numeric-owner", "--same-owner", "-p", "-C", root.as_posix(), "-xf", archive)
            if unpacked.return_code != 0:
                raise WorkspaceArchiveWriteError(
                    path=root, context={"backend": "berth", "reason": "tar_failed"},
                    message=f"unpacking the workspace failed: {unpacked.stderr.strip()}")
        finally:
            await self._as_root("rm", "-f", archive)


class BerthSandboxClient(BaseSandboxClient[BerthSandboxClientOptions | None]):
    """Makes, resumes and deletes sessions in containers of one daemon. Each event loop needs its own.

    Args:
        url: The daemon's URL. The default is that of berth.AsyncClient: BERTH_URL of the environment.
        key: The API key. The default is that of berth.AsyncClient: BERTH_API_KEY of the environment.
        client: A client of one's own in place of both; it is not closed here.
        instrumentation: Of the Agents SDK.
        dependencies: Of the Agents SDK.
    """

    backend_id = "berth"
    supports_default_options = True

    def __init__(self, url: str | None = None, key: str | None = None, *, client: AsyncClient | None = None,
                 instrumentation: Instrumentation | None = None, dependencies: Dependencies | None = None) -> None:
        if client is not None and (url is not None or key is not None):
            raise ValueError("give url and key, or a client, which has its own")
        self._client = client if client is not None else AsyncClient(url, key)
        self._own = client is None
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies

    async def __aenter__(self) -> BerthSandboxClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Containers stay."""
        if self._own:
            await self._client.aclose()

    async def create(self, *, snapshot: SnapshotSpec | SnapshotBase | None = None, manifest: Manifest | None = None,
                     options: BerthSandboxClientOptions | None = None) -> SandboxSession:
        """Makes a container for a new session.

        Raises:
            berth.BerthError: The daemon does not answer, or does not allow what the options ask for.
            MountConfigError: The manifest has mounts.
        """
        manifest = manifest if manifest is not None else Manifest()
        options = options if options is not None else BerthSandboxClientOptions()
        self._validate_manifest_for_create(manifest)
        if manifest.mount_targets():
            raise MountConfigError(message="containers of berth have no mounts; copy the files with File, LocalFile or "
                                           "LocalDir entries, or have the agent fetch them")
        sandbox = await self._make(options)
        session_id = uuid.uuid4()
        return self._session(BerthSandboxSessionState(
            session_id=session_id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session_id)),
            sandbox_id=sandbox.id, options=options, exposed_ports=options.exposed_ports), sandbox, found=False)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Goes on with a session: in its container, or, if that is gone, in a new one that gets the workspace of the
        session's snapshot."""
        if not isinstance(state, BerthSandboxSessionState):
            raise TypeError(f"the session is of another backend, {state.type!r}; resume it with the client of that")
        state.assert_path_grants_rebound()
        try:
            sandbox = await self._client.sandboxes.get(state.sandbox_id)
            found = sandbox.info.state != "expired"
        except (NotFoundError, ExpiredError):
            found = False
        if not found:
            sandbox = await self._make(state.options)
            state.sandbox_id = sandbox.id
            state.workspace_root_ready = False
        return self._session(state, sandbox, found=found)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the session's container: deletes it, or pauses it with pause_on_exit."""
        inner = session._inner
        if not isinstance(inner, BerthSandboxSession):
            raise TypeError(f"the session is of another backend, {session.state.type!r}; delete it with the client of "
                            "that")
        await inner.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Makes a session's state of what serialize_session_state returned."""
        return self._deserialize_session_state_payload(payload, BerthSandboxSessionState)

    async def _make(self, options: BerthSandboxClientOptions) -> AsyncSandbox:
        return await AsyncSandbox.create(
            client=self._client, image=options.image, env=options.env, limits=options.limits, network=options.network,
            labels=options.labels, runtime_class=options.runtime_class,
            idle_timeout_seconds=options.idle_timeout_seconds)

    def _session(self, state: BerthSandboxSessionState, sandbox: AsyncSandbox, *, found: bool) -> SandboxSession:
        inner = BerthSandboxSession(state, sandbox, self._client)
        inner._set_start_state_preserved(found)
        return self._wrap_session(inner, instrumentation=self._instrumentation)


async def _follow(process: _Process) -> None:
    """Collects the output of a command up to its end."""
    try:
        if isinstance(process.command, AsyncPty):
            while piece := await process.command.read():
                process.output.append(piece)
                process.news.set()
        else:
            async for chunk in process.command.stream():
                process.output.append(chunk.data)
                process.news.set()
        process.exit_code = (await process.command.wait()).return_code
    except BerthError as e:
        process.output.append(f"\n[the command was lost: {e}]\n".encode())
    finally:
        process.ended.set()
        process.news.set()


async def _end(process: _Process) -> None:
    """Kills a command, if it still runs, and waits until nothing of it is left here."""
    if not process.ended.is_set():
        try:
            await process.command.kill()
        except BerthError as e:
            logger.warning("the command %s could not be killed: %s", process.command.id, e)
            if process.reader is not None:
                process.reader.cancel()
    if process.reader is not None:
        await asyncio.gather(process.reader, return_exceptions=True)


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user


def _seconds(timeout: float | None) -> float:
    return LONGEST if timeout is None else min(max(timeout, 0.001), LONGEST)


def _content(path: Path, data: io.IOBase) -> bytes:
    content = data.read()
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, (bytes, bytearray)):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
    return bytes(content)


def _context(error: BerthError) -> dict[str, object]:
    return {"backend": "berth", "reason": error.code, "http_status": error.status, "request_id": error.request_id}


def _retryable(error: BerthError) -> bool:
    return isinstance(error, (TooManyRequestsError, UnavailableError))


def _exec_error(argv: Sequence[str], error: BerthError) -> ExecTransportError:
    return ExecTransportError(command=argv, context=_context(error), cause=error, message=f"berth: {error}",
                              retryable=_retryable(error))


def _read_error(path: Path, error: BerthError) -> SandboxError:
    place = posix_path_as_path(coerce_posix_path(path))
    if isinstance(error, NotFoundError) and not error.item.startswith("container_"):
        return WorkspaceReadNotFoundError(path=place, context=_context(error), cause=error)
    return WorkspaceArchiveReadError(path=place, context={**_context(error), "detail": str(error)}, cause=error,
                                     retryable=_retryable(error))
