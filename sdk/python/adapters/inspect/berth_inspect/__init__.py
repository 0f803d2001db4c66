"""Inspect AI's sandboxes in berth containers.

    Task(dataset=..., solver=[use_tools(bash()), generate()], sandbox="berth")

Each sample has a container of its own, which is deleted after it. BerthSandboxConfig says what it is like:

    Task(..., sandbox=SandboxEnvironmentSpec("berth", BerthSandboxConfig(image="base", network="none")))
"""

import asyncio
import errno
import hashlib
import json
import posixpath
import shlex
import sys
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, NoReturn, overload

from berth import (
    AsyncClient, AsyncCommand, AsyncSandbox, BerthError, CommandResult, ConnectionFailedError, ExpiredError,
    InvalidArgumentError, NotFoundError, PermissionDeniedError, TooLargeError,
)
from inspect_ai.util import (
    ExecResult, OutputLimitExceededError, SandboxConnection, SandboxEnvironment, SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits, SandboxUnavailableError, SandboxUserUnsupportedError, sandboxenv,
)
from pydantic import BaseModel, ConfigDict

__all__ = ["BerthSandboxConfig", "BerthSandboxEnvironment"]

LABEL = "inspect.task"  # every container of this package has it
LONGEST = 86400  # seconds; the daemon's maximum for a command
IDLE = 86400  # seconds without use after which the daemon removes the container of a sample that was never cleaned up
SHORT_INPUT = 1 << 20  # characters of standard input that go with the request
GONE = ("expired", "stopped", "host_restart", "lost")  # reasons of commands that ended because their container did


class BerthSandboxConfig(BaseModel):
    """What the container of a sample is like."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = None
    """Name of an image of the daemon. None: its default image."""
    dockerfile: str | None = None
    """Path of a Dockerfile to build the image of. Its directory is the build's context. Excludes image."""
    build_network: Literal["none", "allowlist", "open"] | None = None
    """What RUN of the Dockerfile may reach. None: the daemon's default."""
    user: str = "user"
    """Who runs commands and owns files, unless exec names another user: user, root, or one of the image."""
    working_dir: str = "/workspace"
    """Where commands begin, and what paths are relative to."""
    env: Mapping[str, str] = {}
    """Environment of every command."""
    cpus: float | None = None
    """Cores. None: the daemon's default, as for all limits."""
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    pids: int | None = None
    network: Literal["none", "open"] = "none"
    """What the container may reach: nothing, or any public host."""
    allow: tuple[str, ...] = ()
    """Hosts that it may reach with the network "none", such as pypi.org or *.example.com."""
    runtime_class: Literal["runc", "gvisor"] | None = None
    """How it is isolated. None: the daemon's default."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


@sandboxenv(name="berth")
class BerthSandboxEnvironment(SandboxEnvironment):
    """A container of one sample."""

    _kept: list[AsyncSandbox] = []  # those whose samples have not been cleaned up

    def __init__(self, sandbox: AsyncSandbox, config: BerthSandboxConfig, url: str) -> None:
        super().__init__()
        self.sandbox = sandbox
        """The container; for what Inspect has no method for, such as snapshots."""
        self._config = config
        self._url = url

    # -- Life

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Checks the daemon and the image, or builds the image of a Dockerfile."""
        wanted = settings(config)
        async with AsyncClient() as client:
            if wanted.dockerfile:
                await build(client, wanted)
            elif wanted.image and wanted.image not in (names := [i.name for i in await client.images.list()]):
                raise ValueError(
                    f"the daemon at {client.url} has no image {wanted.image!r} but {', '.join(names) or 'none'}; get "
                    f"it with `berth image pull {wanted.image}`, or name a Dockerfile")
            else:
                await client.info()

    @classmethod
    async def sample_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None,
                          metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Creates the container of a sample."""
        wanted = settings(config)
        limits = {name: value for name in ("cpus", "memory_bytes", "disk_bytes", "pids")
                  if (value := getattr(wanted, name)) is not None}
        async with AsyncClient() as client:
            url = client.url
        sandbox = await AsyncSandbox.create(
            image=image_of(wanted), env=wanted.env or None, limits=limits or None, labels={LABEL: label(task_name)},
            network={"mode": "allowlist", "allow": [*wanted.allow]} if wanted.allow else wanted.network,
            runtime_class=wanted.runtime_class, idle_timeout_seconds=IDLE, lease={"at_end": "remove"})
        try:
            if wanted.working_dir != "/workspace":
                await sandbox.files.mkdir(wanted.working_dir, user="root")
                await sandbox.run(["chown", wanted.user, wanted.working_dir], user="root", cwd="/", check=True)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(sandbox.delete()))
            raise
        cls._kept.append(sandbox)
        return {"default": cls(sandbox, wanted, url)}

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None,
                             environments: dict[str, SandboxEnvironment], interrupted: bool) -> None:
        """Deletes the container of a sample."""
        for environment in environments.values():
            sandbox = environment.as_type(BerthSandboxEnvironment).sandbox
            await sandbox.delete()
            if sandbox in cls._kept:
                cls._kept.remove(sandbox)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        """Says what --no-sandbox-cleanup has left."""
        while not cleanup and cls._kept:
            sandbox = cls._kept.pop()
            print(f"{sandbox.id} was kept. Enter it with `berth exec -it {sandbox.id} bash`, and delete it with "
                  f"`inspect sandbox cleanup berth {sandbox.id}`.", file=sys.stderr)
            await sandbox.aclose()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Deletes the container with this ID, or all that Inspect has left."""
        async with AsyncClient() as client:
            for sandbox in await AsyncSandbox.list(client=client):
                if LABEL in (sandbox.info.labels or {}) and id in (None, sandbox.id):
                    await sandbox.delete()
                    print(f"deleted {sandbox.id}")

    @classmethod
    def config_files(cls) -> list[str]:
        """A Dockerfile beside the task is the image of its containers."""
        return ["Dockerfile"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Makes a BerthSandboxConfig of JSON."""
        return BerthSandboxConfig(**config)

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Says how a person enters the container."""
        try:
            await self.sandbox.refresh()
        except BerthError as e:
            raise ConnectionError(f"the container {self.sandbox.id} cannot be entered: {e}") from e
        command = ["berth", "--host", self._url, "exec", "-it", "-u", user or self._config.user, self.sandbox.id]
        return SandboxConnection(type="berth", command=shlex.join([*command, "bash"]), container=self.sandbox.id)

    # -- Commands

    async def exec(self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
                   env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
                   timeout_retry: bool = True, concurrency: bool = True) -> ExecResult[str]:
        """Runs a command. It runs once, so timeout_retry means nothing here."""
        output = Captured(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE)
        asked: dict[str, Any] = {
            "cwd": self._path(cwd or "."), "env": env, "user": user or self._config.user, "on_output_limit": "wait",
            "timeout_seconds": min(timeout or LONGEST, LONGEST)}
        try:
            try:
                result = await self._run(cmd, input, output, asked)
            except TooLargeError:
                result = await self._run(await self._as_script(cmd, asked["user"]), input, output, asked)
        except InvalidArgumentError as e:
            if e.item == asked["user"]:
                raise SandboxUserUnsupportedError(str(e)) from e
            if e.item == asked["cwd"]:
                return ExecResult(False, 125, "", f"{e}\n")
            raise
        except (ConnectionFailedError, ExpiredError, NotFoundError) as e:
            raise SandboxUnavailableError(f"the container {self.sandbox.id} cannot run a command: {e}") from e
        return output.outcome(result, timeout)

    async def _run(self, cmd: list[str], input: str | bytes | None, output: "Captured",
                   asked: dict[str, Any]) -> CommandResult:
        if input is None or isinstance(input, str) and len(input) <= SHORT_INPUT and "\0" not in input:
            return await self.sandbox.run(
                cmd, stdin=input or None, on_stdout=output.stdout, on_stderr=output.stderr, **asked)
        command = await self.sandbox.run(cmd, background=True, open_stdin=True, **asked)
        return await feed(command, input, output)

    async def _as_script(self, cmd: list[str], user: str) -> list[str]:
        """Returns a command that does the same as one that is too long for a request."""
        script = f"/tmp/inspect-{uuid.uuid4().hex}"
        await self.sandbox.files.write(script, f'rm -f -- "$0"\nexec {shlex.join(cmd)}\n', user=user)
        return ["/bin/sh", script]

    # -- Files

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file as the container's user, and makes its directories."""
        path = self._path(file)
        try:
            await self.sandbox.files.write(path, contents, user=self._config.user)
        except BerthError as e:
            await self._file_error(e, path)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads a file as the container's user."""
        path, content = self._path(file), bytearray()
        try:
            async with aclosing(self.sandbox.files.stream(path, user=self._config.user)) as pieces:
                async for piece in pieces:
                    content += piece
                    if len(content) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        except BerthError as e:
            await self._file_error(e, path)
        return content.decode() if text else bytes(content)

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._config.working_dir, path))

    async def _file_error(self, error: BerthError, path: str) -> NoReturn:
        """Raises the error of the operating system that an error of the daemon stands for."""
        if isinstance(error, (ConnectionFailedError, ExpiredError)) or error.item == self.sandbox.id:
            raise SandboxUnavailableError(f"the container {self.sandbox.id} cannot be reached: {error}") from error
        number = None
        if isinstance(error, NotFoundError):
            number = errno.ENOENT
        elif isinstance(error, PermissionDeniedError):
            number = errno.EACCES
        elif isinstance(error, InvalidArgumentError) and "is a directory" in error.message:
            number = errno.EISDIR
        if number is None:
            raise error
        raise OSError(number, error.message, path) from error


class Captured:
    """The output of a command, as it comes. A stream that is longer than the limit is an OutputLimitExceededError,
    which ends the command."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}

    def stdout(self, text: str) -> None:
        self.take("stdout", text)

    def stderr(self, text: str) -> None:
        self.take("stderr", text)

    def take(self, stream: str, text: str) -> None:
        self._pieces[stream].append(text)
        self._sizes[stream] += len(text.encode())
        if self._sizes[stream] > self._limit:
            whole = self._text(stream).encode()[:self._limit].decode(errors="ignore")
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, whole)

    def _text(self, stream: str) -> str:
        return "".join(self._pieces[stream])

    def outcome(self, result: CommandResult, timeout: int | None) -> ExecResult[str]:
        """Returns the result of a command in Inspect's form, or raises what Inspect wants in its place."""
        stdout, stderr = self._text("stdout"), self._text("stderr")
        if result.reason == "timeout":
            error = TimeoutError(f"Command timed out after {timeout or LONGEST} seconds")
            setattr(error, "truncated_output", stdout + stderr or None)
            raise error
        if result.reason == "not_started" and result.return_code == 126:
            raise PermissionError(errno.EACCES, result.message or stderr.strip())
        if result.reason in GONE:
            raise SandboxUnavailableError(
                f"the command was ended with its container ({result.reason}) {result.message}".rstrip())
        if result.reason not in ("exit", "signal", "not_started"):
            stderr += f"{result.message or result.reason}\n"  # such as out_of_memory, which nothing else tells
        return ExecResult(result.reason == "exit" and result.return_code == 0, result.return_code, stdout, stderr)


async def feed(command: AsyncCommand, data: str | bytes, output: Captured) -> CommandResult:
    """Writes the standard input of a command while it takes its output. It kills the command if it is interrupted."""

    async def write() -> None:
        try:
            await command.stdin(data, close=True)
        except BerthError:
            pass  # it ended without reading all of it

    writing = asyncio.ensure_future(write())
    try:
        return await command.wait(on_stdout=output.stdout, on_stderr=output.stderr)
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(kill(command)))
        raise
    finally:
        writing.cancel()


async def kill(command: AsyncCommand) -> None:
    try:
        await command.kill()
    except BerthError:
        pass  # it has ended by itself


def settings(config: SandboxEnvironmentConfigType | None) -> BerthSandboxConfig:
    """Returns the settings of a sandbox that was named by a BerthSandboxConfig, a path or the name of an image."""
    if config is None:
        return BerthSandboxConfig()
    if isinstance(config, BerthSandboxConfig):
        if config.image and config.dockerfile:
            raise ValueError(f"both the image {config.image!r} and the Dockerfile {config.dockerfile!r} are named")
        return config
    if not isinstance(config, str):
        raise ValueError(
            f"the sandbox berth takes no {type(config).__name__}; give it a BerthSandboxConfig, a Dockerfile, or the "
            f"name of an image")
    if config.endswith((".yaml", ".yml")):
        raise ValueError(f"the sandbox berth cannot run the services of {config}; give it the Dockerfile of one")
    if config.endswith(".json"):
        return BerthSandboxConfig(**json.loads(Path(config).read_text()))
    if "dockerfile" in Path(config).name.lower():
        return BerthSandboxConfig(dockerfile=config)
    return BerthSandboxConfig(image=config)


def image_of(config: BerthSandboxConfig) -> str | None:
    """Returns the name of a container's image. That of a Dockerfile is derived from its path."""
    if not config.dockerfile:
        return config.image
    path = Path(config.dockerfile).resolve()
    return f"inspect-{path.parent.name.lower()}-{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


async def build(client: AsyncClient, config: BerthSandboxConfig) -> None:
    """Builds the image of a Dockerfile. Steps that have not changed come from the daemon's cache."""
    path, name = Path(config.dockerfile or "").resolve(), image_of(config)
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such Dockerfile", str(path))
    await client.images.build(path.parent, name or "", dockerfile=path.name, network=config.build_network)


def label(text: str) -> str:
    """Returns a text as the value of a label, which has at most 256 bytes."""
    return text.encode()[:256].decode(errors="ignore")
