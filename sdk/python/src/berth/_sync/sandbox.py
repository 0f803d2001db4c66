# Made by dev/make_sync.py of ../_async/sandbox.py; do not edit.
"""Containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from .._config import path
from .._retry import new_key
from .._wire import body, decode, decode_list
from ..errors import NotFoundError
from ..results import Chunk, CommandResult
from ..toolserver import Tools
from ..types import (
    CodeTools, Container, ContainerStats, Exec, LeaseRequest, Limits, Manifest, Network, NetworkSecret, PublicPorts,
    Snapshot, ToolCall,
)
from . import _io
from ._follow import Follower
from ._transport import Transport, Request
from .code import WORKSPACE, Code
from .command import Command, Pty, run_to_end
from .files import Files
from .ports import Ports

if TYPE_CHECKING:
    from .client import Client

RECONNECT = 10  # seconds that a command goes on without its client, which comes back sooner if there is a daemon

Text = Callable[[str], Any]
Object = Mapping[str, Any]


class Sandbox:
    """A container with an ID and a lease. It is stopped when it is not used, keeps its files, and starts with its next
    use; the same ID leads to it.

    The end of a `with` block deletes a sandbox that was created or forked, and leaves others as they are.
    """

    def __init__(self, transport: Transport, info: Container, *, made: bool = False, alone: bool = False) -> None:
        self._transport = transport
        self._made = made
        self._alone = alone  # nobody else uses the transport
        self._deleted = False
        self.id: str = info.id
        """The container's ID."""
        self.info: Container = info
        """The container as the daemon described it last; see refresh."""
        self.files = Files(transport, info.id)
        self.code = Code(transport, info.id)
        self.ports = Ports(transport, info.id)
        self.tools = Tools(transport, info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @property
    def client_settings(self) -> dict[str, Any]:
        """Arguments that make another client of the same daemon and key, of either kind. The key is among them."""
        return self._transport.settings()

    # -- Getting one

    @classmethod
    def create(cls, *, client: Client | None = None, image: str | None = None,
                     snapshot: str | None = None, name: str | None = None, existing: bool | None = None,
                     env: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None,
                     files: Sequence[str] | None = None, labels: Mapping[str, str] | None = None,
                     limits: Limits | Object | None = None, network: Network | Object | str | None = None,
                     network_secrets: Mapping[str, NetworkSecret | Object] | None = None,
                     public_ports: PublicPorts | Object | None = None,
                     code_tools: CodeTools | Object | Sequence[str] | None = None,
                     runtime_class: str | None = None, sudo: bool | None = None, workspace_id: str | None = None,
                     idle_timeout_seconds: int | None = None, max_lifetime_seconds: int | None = None,
                     lease: LeaseRequest | Object | None = None,
                     idempotency_key: str | None = None) -> Sandbox:
        """Creates a container and returns when it runs.

        Args:
            client: The daemon and the key. None uses those of the environment, for this sandbox alone.
            image: Name from the list of images; the default is base.
            snapshot: ID or name of a snapshot to begin with.
            name: 1 to 63 letters, digits, `_`, `.` and `-`. It stands wherever the ID does.
            existing: Return the live container of that name if there is one; `info.differences` says where it differs.
            env: Environment of every command.
            secrets: More environment, which is sealed on disk and hidden in records. At least 4 bytes each.
            files: IDs of stored files to put into $INPUT_DIR.
            labels: At most 64, to list containers by.
            limits: cpus, memory_bytes, pids, disk_bytes and open_files.
            network: What it may reach: a mode (none, allowlist, open), or mode, allow, deny and ask. Default none.
            network_secrets: Environment whose values the proxy inserts: name to value and hosts.
            public_ports: Ports that take requests without a credential: all, or ports.
            code_tools: Names of tools that its code may call, or allow, max_calls, timeout_seconds and provider.
            runtime_class: runc or gvisor; the default is the daemon's.
            sudo: Its user becomes its root by sudo.
            workspace_id: A kept workspace.
            idle_timeout_seconds: Stop it after this long without use, up to 30 days; default 300.
            max_lifetime_seconds: Remove it this long after its creation, up to 365 days; default 30 days.
            lease: mode (rolling, absolute), at_end (stop, pause, remove), and ends_at or ends_in_seconds.
            idempotency_key: Creates at most one container. Without it, one is made up for this call.

        Raises:
            AlreadyExistsError: The name is taken.
            PermissionDeniedError: The daemon does not allow what was asked for.
            TooManyRequestsError: There are as many containers as the daemon or the key allows.
        """
        transport, alone = _transport(client)
        if code_tools is not None and not isinstance(code_tools, (CodeTools, Mapping)):
            code_tools = {"allow": [*code_tools]}
        if idempotency_key is None and not existing and transport.wait > 0:
            idempotency_key = new_key(transport.wait)
        asked = body(
            image=image, snapshot=snapshot, name=name, existing=existing, env=env, secrets=secrets, files=files,
            labels=labels, limits=limits, network=network, network_secrets=network_secrets, public_ports=public_ports,
            code_tools=code_tools, runtime_class=runtime_class, sudo=sudo, workspace_id=workspace_id,
            idle_timeout_seconds=idle_timeout_seconds, max_lifetime_seconds=max_lifetime_seconds, lease=lease,
            idempotency_key=idempotency_key)
        try:
            answer = transport.post("/v1/containers", asked, repeat=bool(idempotency_key or existing))
        except BaseException:
            if alone:
                transport.release()
            raise
        info = decode(Container, answer)
        return cls(transport, info, made=not info.existing, alone=alone)

    @classmethod
    def get(cls, id: str, *, client: Client | None = None) -> Sandbox:
        """Returns the container with this ID or name. It is not started for that.

        Raises:
            NotFoundError: There is none.
            ExpiredError: There was one, and its time is over.
        """
        transport, alone = _transport(client)
        try:
            return cls(transport, decode(Container, transport.get(path("containers", id))), alone=alone)
        except BaseException:
            if alone:
                transport.release()
            raise

    @classmethod
    def list(cls, *, client: Client | None = None, labels: Mapping[str, str] | None = None,
                   state: str | None = None) -> Sequence[Sandbox]:
        """Lists containers, newest first.

        Args:
            client: The daemon and the key. None uses those of the environment.
            labels: All of these must match.
            state: Only those that are creating, running, paused, stopped or expired. None is all but expired ones.
        """
        transport, alone = _transport(client)
        query: dict[str, Any] = {
            "label": [f"{k}={v}" for k, v in (labels or {}).items()], "state": state, "limit": 1000}
        try:
            return [cls(transport.share() if alone else transport, decode(Container, c), alone=alone)
                    for c in transport.pages("/v1/containers", **query)]
        finally:
            if alone:
                transport.release()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._made and not self._deleted:
            _io.cleanup(self.delete)
        else:
            self.close()

    def close(self) -> None:
        """Closes the connections of a sandbox that was made without a client. The container stays."""
        if self._alone:
            self._alone = False
            self._transport.release()

    # -- Commands

    @overload
    def run(self, command: str | Sequence[str], *, background: Literal[False] = False,
                  on_stdout: Text | None = None, on_stderr: Text | None = None,
                  on_output: Callable[[Chunk], Any] | None = None, check: bool = False,
                  cwd: str | None = None, env: Mapping[str, str] | None = None,
                  secrets: Mapping[str, str] | None = None, user: str | None = None, stdin: str | None = None,
                  files: Sequence[str] | None = None, shell: str | None = None, job_id: str | None = None,
                  timeout_seconds: float | None = None, max_output_bytes: int | None = None,
                  on_output_limit: Literal["truncate", "fail", "wait"] | None = None, generation: int | None = None,
                  idempotency_key: str | None = None) -> CommandResult: ...

    @overload
    def run(self, command: str | Sequence[str], *, background: Literal[True], open_stdin: bool = False,
                  cwd: str | None = None, env: Mapping[str, str] | None = None,
                  secrets: Mapping[str, str] | None = None, user: str | None = None, stdin: str | None = None,
                  files: Sequence[str] | None = None, shell: str | None = None, job_id: str | None = None,
                  timeout_seconds: float | None = None, max_output_bytes: int | None = None,
                  on_output_limit: Literal["truncate", "fail", "wait"] | None = None, generation: int | None = None,
                  idempotency_key: str | None = None) -> Command: ...

    def run(self, command: str | Sequence[str], *, background: bool = False, on_stdout: Text | None = None,
                  on_stderr: Text | None = None, on_output: Callable[[Chunk], Any] | None = None,
                  check: bool = False, open_stdin: bool = False,
                  cwd: str | None = None, env: Mapping[str, str] | None = None,
                  secrets: Mapping[str, str] | None = None, user: str | None = None, stdin: str | None = None,
                  files: Sequence[str] | None = None, shell: str | None = None, job_id: str | None = None,
                  timeout_seconds: float | None = None, max_output_bytes: int | None = None,
                  on_output_limit: Literal["truncate", "fail", "wait"] | None = None, generation: int | None = None,
                  idempotency_key: str | None = None) -> CommandResult | Command:
        """Runs a command, and waits for its end unless background is set.

        A foreground command survives a broken connection and a restart of the daemon, if this process comes back
        within 10 seconds, which it does by itself. It runs once whatever happens. If the call is interrupted, the
        command is killed.

        Args:
            command: Text for bash, or a program and its arguments.
            background: Return a Command as soon as it has started. It goes on without this process.
            on_stdout: Called with its output as it comes.
            on_stderr: Called with its standard error as it comes.
            on_output: Called with each piece of both as it comes, as the bytes that the command wrote.
            check: Raise CommandFailedError if it does not return 0.
            open_stdin: Keep its standard input open for `command.stdin`; with background.
            cwd: Where it runs, absolute or relative to its job's directory; the default is /workspace.
            env: Added to the environment of the container.
            secrets: More environment, which is hidden in records.
            user: user (default), root, or another user of the container.
            stdin: All of its standard input.
            files: IDs of stored files to put into $INPUT_DIR first.
            shell: Name of a persistent shell, which keeps its directory and variables; made at its first use.
            job_id: The job that it belongs to, in whose directory it runs if there is no cwd.
            timeout_seconds: Up to 86400; the default is 300, and none for a background command.
            max_output_bytes: What is kept of each stream, head and tail; 1 MiB by default and 16 MiB at most.
            on_output_limit: truncate (default), fail, or wait, which loses nothing and slows the command down.
            generation: Run it in this generation of the container alone.
            idempotency_key: Run it at most once for as long as the daemon knows it. Without it, one is made up for
                this call.

        Raises:
            CommandFailedError: With check: it did not return 0.
            ExpiredError: The container's time is over.
            ConflictError: Another generation runs, or the key was used for another command.
        """
        wait = self._transport.wait
        asked = body(
            command=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else [*command], env=env, secrets=secrets, user=user, stdin=stdin,
            files=files, shell=shell, job_id=job_id, timeout_seconds=timeout_seconds,
            max_output_bytes=max_output_bytes, on_output_limit=on_output_limit, generation=generation,
            cwd=cwd if cwd is not None or shell or job_id else WORKSPACE,
            idempotency_key=idempotency_key or (new_key(wait) if wait > 0 else None))
        if background:
            asked |= {"background": True, "open_stdin": open_stdin} if open_stdin else {"background": True}
            answer = self._transport.post(
                path("containers", self.id, "exec"), asked, repeat="idempotency_key" in asked)
            return Command(self._transport, self.id, decode(Exec, answer.get("exec", answer)))
        if idempotency_key is None and wait > 0:
            asked["reconnect_seconds"] = RECONNECT
        result = run_to_end(self._transport, self.id, asked, on_stdout, on_stderr, on_output)
        return result.check() if check else result

    def pty(self, command: str | Sequence[str] = "bash", *, rows: int = 24, cols: int = 80,
                  cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None,
                  timeout_seconds: float = 86400) -> Pty:
        """Runs a program on a terminal.

        Args:
            command: Text for bash, or a program and its arguments.
            rows: Height in characters.
            cols: Width in characters.
            cwd: Where it runs; the default is /workspace.
            env: Added to the environment of the container; TERM is xterm-256color unless it is given.
            user: user (default), root, or another user of the container.
            timeout_seconds: Up to 86400.
        """
        asked = body(
            command=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else [*command], cwd=cwd or WORKSPACE,
            env={"TERM": "xterm-256color", **(env or {})}, user=user, timeout_seconds=timeout_seconds,
            tty={"rows": rows, "cols": cols}, open_stdin=True)
        if self._transport.wait > 0:
            asked |= {"idempotency_key": new_key(self._transport.wait), "reconnect_seconds": RECONNECT}
        follower = Follower(self._transport, self.id, body=asked)
        chunks = follower.chunks()
        next(chunks)
        return Pty(self._transport, self.id, follower, chunks)

    def command(self, id: str) -> Command:
        """Returns a command of this container, by its ID or by the process ID of a running one."""
        answer = self._transport.get(path("containers", self.id, "execs", id))
        return Command(self._transport, self.id, decode(Exec, answer))

    def commands(self) -> Sequence[Command]:
        """Lists the commands, running and recorded, in the order of their start."""
        answer = self._transport.get(path("containers", self.id, "execs"))
        return [Command(self._transport, self.id, e) for e in decode_list(Exec, answer["data"])]

    # -- Life

    def refresh(self) -> Container:
        """Asks the daemon how the container is."""
        return self._set(self._transport.get(path("containers", self.id)))

    def _set(self, answer: Any) -> Container:
        self.info = decode(Container, answer)
        return self.info

    def renew(self, seconds: int = 0) -> datetime:
        """Moves the end of the lease to this long from now, never to an earlier time. It returns the end.

        Args:
            seconds: Up to 2592000; 0 is the idle timeout of the container.
        """
        info = self._set(self._transport.post(
            path("containers", self.id, "extend"), {"seconds": seconds}, repeat=True))
        return info.expires_at

    def update(self, *, name: str | None = None, labels: Mapping[str, str] | None = None,
                     limits: Limits | Object | None = None, network: Network | Object | str | None = None,
                     public_ports: PublicPorts | Object | None = None, idle_timeout_seconds: int | None = None,
                     lease: LeaseRequest | Object | None = None) -> Container:
        """Changes what is given, all of it or nothing. The arguments are those of create; an empty name takes the name
        away."""
        return self._set(self._transport.patch(path("containers", self.id), body(
            name=name, labels=labels, limits=limits, network=network, public_ports=public_ports,
            idle_timeout_seconds=idle_timeout_seconds, lease=lease)))

    def _become(self, what: str, *, repeat: bool = True) -> Container:
        return self._set(self._transport.post(path("containers", self.id, what), repeat=repeat))

    def pause(self) -> Container:
        """Freezes all processes until the next use. They keep their memory.

        Raises:
            ConflictError: The container is stopped, or a command is just starting.
        """
        return self._become("pause")

    def resume(self) -> Container:
        """Continues the processes of a paused container; any other use does so, too.

        Raises:
            ConflictError: The container is stopped.
        """
        return self._become("resume")

    def stop(self) -> Container:
        """Ends all processes and keeps all files. The next use starts the container."""
        return self._become("stop")

    def start(self) -> Container:
        """Starts a stopped container; any other use does so, too."""
        return self._become("start")

    def reset(self) -> Container:
        """Ends all processes and removes what was written outside of /workspace."""
        return self._become("reset", repeat=False)

    def delete(self, *, keep_workspace: bool = False) -> None:
        """Ends all commands and removes the container with its files. One that is gone is no error.

        Args:
            keep_workspace: Keep the workspace, for `create(workspace_id=…)`.
        """
        try:
            self._transport.delete(path("containers", self.id), keep_workspace=keep_workspace)
        except NotFoundError:
            pass
        self._deleted = True
        self.close()

    # -- Copies

    def snapshot(self, name: str | None = None, *, labels: Mapping[str, str] | None = None,
                       expires_after_seconds: int | None = None) -> Snapshot:
        """Keeps all files of the container as they are now. Processes are not in a snapshot.

        Args:
            name: Unique among the owner's snapshots; it stands wherever the ID does.
            labels: At most 64.
            expires_after_seconds: Remove it then, up to 365 days; None keeps it.

        Raises:
            AlreadyExistsError: The name is taken.
            UnsupportedError: The daemon's disk pool is not on btrfs.
        """
        return decode(Snapshot, self._transport.post(path("containers", self.id, "snapshots"), body(
            name=name, labels=labels, expires_after_seconds=expires_after_seconds)))

    def snapshots(self) -> Sequence[Snapshot]:
        """Lists the snapshots of this container, newest first."""
        pages = self._transport.pages(path("containers", self.id, "snapshots"))
        with closing(pages) as listed:
            return [decode(Snapshot, s) for s in listed]

    def restore(self, snapshot: Snapshot | str) -> Container:
        """Gives the container the files of a snapshot and ends its processes. Files that no snapshot has are lost."""
        ref = snapshot if isinstance(snapshot, str) else snapshot.id
        return self._set(self._transport.call(Request(
            "POST", path("containers", self.id, "restore"), json={"snapshot": ref}, timeout=600)))

    def fork(self, count: int = 1) -> Sequence[Sandbox]:
        """Makes copies of the container, with its files as of one moment and its settings, without its processes. If
        one cannot be made, none is.

        Args:
            count: 1 to 100.
        """
        answer = self._transport.call(Request(
            "POST", path("containers", self.id, "fork"), json={"count": count}, timeout=600))
        return [Sandbox(self._transport.share() if self._alone else self._transport, c, made=True,
                             alone=self._alone) for c in decode_list(Container, answer["data"])]

    # -- What happened

    def stats(self, *, since: datetime | None = None, until: datetime | None = None) -> ContainerStats:
        """Returns what the container uses now, and the samples of the last hour."""
        return decode(ContainerStats, self._transport.get(
            path("containers", self.id, "stats"), since=since, until=until))

    def manifest(self, job_id: str) -> Manifest:
        """Lists the files of a job, and which command made each."""
        return decode(Manifest, self._transport.get(path("containers", self.id, "jobs", job_id, "manifest")))

    def add_inputs(self, files: Sequence[str]) -> str:
        """Puts stored files into $INPUT_DIR, and returns its path."""
        answer = self._transport.post(
            path("containers", self.id, "inputs"), {"files": [*files]}, repeat=True)
        return str(answer["input_dir"])

    def tool_calls(self, *, state: str | None = None) -> Sequence[ToolCall]:
        """Lists the calls of tools that code in the container made, newest first.

        Args:
            state: Only those in this state; parked ones wait for approval.
        """
        pages = self._transport.pages(path("containers", self.id, "tool_calls"), state=state, limit=100)
        with closing(pages) as listed:
            return [decode(ToolCall, c) for c in listed]


def _transport(client: Client | None) -> tuple[Transport, bool]:
    if client is not None:
        return client.transport, False
    from .client import Client as Maker
    return Maker().transport, True
