"""A berth container as the sandbox of a deep agent.

    with Sandbox.create() as sandbox:
        agent = create_deep_agent(model="…", backend=BerthSandbox(sandbox))

The agent's tools for files and its tool `execute` then work in the container.
"""

from __future__ import annotations

import asyncio
import posixpath
import threading
from weakref import WeakKeyDictionary

from berth import (
    AsyncClient, AsyncSandbox, BerthError, CommandResult, InvalidArgumentError, NotFoundError, PermissionDeniedError,
    Sandbox, UnauthenticatedError, UnavailableError,
)
from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

__all__ = ["BerthSandbox"]

TIMEOUT = 30 * 60  # seconds of a command for which the agent gives no limit
LONGEST = 24 * 60 * 60  # seconds of a command that may run without a limit; the most that the daemon takes
MOST_OUTPUT = 16 << 20  # bytes; a page of base64 from deepagents has 700 KB, a long list of paths some MB
AT_ONCE = 8  # files that are copied side by side
ARTIFACTS = ("/large_tool_results", "/conversation_history", "/blobs")  # where deepagents puts what is too long


class BerthSandbox(BaseSandbox):
    """A deepagents backend whose files and commands are those of a container.

    Files belong to the container's user, who may write in /workspace, /tmp and the home directory. Commands begin in
    /workspace. deepagents keeps long results in directories at the root, which are made for it.

    The asynchronous methods have connections of their own, one set for each event loop; `aclose` closes those of the
    running loop. A canceled call kills its command. The container's life is that of the given Sandbox.

    Args:
        sandbox: The container.
        timeout: Seconds after which a command without a limit of its own is killed.
    """

    enable_capture_offload = True

    def __init__(self, sandbox: Sandbox, *, timeout: int = TIMEOUT) -> None:
        if not isinstance(sandbox, Sandbox):
            raise TypeError(f"BerthSandbox takes a berth.Sandbox, as Sandbox.create() gives it, not "
                            f"{type(sandbox).__name__}")
        self._sandbox = sandbox
        self._timeout = timeout
        self._twins: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncSandbox]] = (
            WeakKeyDictionary())
        self._ready = False
        self._turn = threading.Lock()

    @property
    def id(self) -> str:
        """The container's ID."""
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command in bash, and returns what it writes to both streams in the order in which it does.

        Args:
            command: Text for bash.
            timeout: Seconds after which it is killed; its exit code is 124 then. 0 allows it a day. None is the
                backend's own limit.

        Raises:
            berth.BerthError: The daemon does not answer, or the container is gone.
        """
        self._prepare()
        seconds = self._limit(timeout)
        return _response(
            self._sandbox.run(_text(command), timeout_seconds=seconds, max_output_bytes=MOST_OUTPUT), seconds)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Works like execute."""
        sandbox = await self._twin()
        seconds = self._limit(timeout)
        return _response(
            await sandbox.run(_text(command), timeout_seconds=seconds, max_output_bytes=MOST_OUTPUT), seconds)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files and makes their directories. Each has an answer; a file is there whole or not at all."""
        self._prepare()
        return [self._upload(path, content) for path, content in files]

    def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        if not posixpath.isabs(path):
            return FileUploadResponse(path, "invalid_path")
        try:
            self._sandbox.files.write(path, content)
        except BerthError as e:
            return FileUploadResponse(path, self._code(e))
        return FileUploadResponse(path)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Works like upload_files, with several files at once."""
        sandbox = await self._twin()
        slots = asyncio.Semaphore(AT_ONCE)

        async def upload(path: str, content: bytes) -> FileUploadResponse:
            if not posixpath.isabs(path):
                return FileUploadResponse(path, "invalid_path")
            async with slots:
                try:
                    await sandbox.files.write(path, content)
                except BerthError as e:
                    return FileUploadResponse(path, self._code(e))
            return FileUploadResponse(path)

        return list(await asyncio.gather(*[upload(path, content) for path, content in files]))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files. Each has an answer of its own."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            return FileDownloadResponse(path, self._sandbox.files.read(path))
        except BerthError as e:
            return FileDownloadResponse(path, error=self._code(e))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Works like download_files, with several files at once."""
        sandbox = await self._twin()
        slots = asyncio.Semaphore(AT_ONCE)

        async def download(path: str) -> FileDownloadResponse:
            if not posixpath.isabs(path):
                return FileDownloadResponse(path, error="invalid_path")
            async with slots:
                try:
                    return FileDownloadResponse(path, await sandbox.files.read(path))
                except BerthError as e:
                    return FileDownloadResponse(path, error=self._code(e))

        return list(await asyncio.gather(*[download(path) for path in paths]))

    async def aclose(self) -> None:
        """Closes the connections of the running event loop. The container stays, and later calls connect again."""
        client, _ = self._twins.pop(asyncio.get_running_loop(), (None, None))
        if client is not None:
            await client.aclose()

    def _limit(self, timeout: int | None) -> int:
        seconds = self._timeout if timeout is None else timeout
        if not 0 <= seconds <= LONGEST:
            raise ValueError(f"timeout must be 0 to {LONGEST} seconds, not {seconds}")
        return seconds or LONGEST

    def _prepare(self) -> None:
        """Makes the directories that deepagents expects to be able to write to."""
        with self._turn:
            if not self._ready:
                self._sandbox.run(["install", "-d", "-o", "user", "-g", "user", *ARTIFACTS], user="root", check=True)
                self._ready = True

    async def _twin(self) -> AsyncSandbox:
        """Returns the sandbox for the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._twins:
            if not self._ready:
                await asyncio.to_thread(self._prepare)
            client = AsyncClient(**self._sandbox.client_settings)
            self._twins[loop] = client, AsyncSandbox(client.transport, self._sandbox.info)
        return self._twins[loop][1]

    def _code(self, error: BerthError) -> str:
        """Returns deepagents' word for an error with a file, or the error's own text. What is wrong with the container
        or the daemon is no answer for an agent: it is raised."""
        if error.item == self.id or isinstance(error, (UnavailableError, UnauthenticatedError)):
            raise error
        if isinstance(error, NotFoundError):
            return "file_not_found"
        if isinstance(error, PermissionDeniedError):
            return "permission_denied"
        if isinstance(error, InvalidArgumentError):
            return "is_directory" if "is a directory" in error.message else "invalid_path"
        return str(error)


def _text(command: str) -> str:
    """Returns the command with both streams in one, so that their order is kept. bash reads line by line, so it has
    done this before it finds that the command is not well-formed."""
    return "exec 2>&1\n" + command


def _response(result: CommandResult, seconds: int) -> ExecuteResponse:
    output = result.stdout + result.stderr
    code = result.return_code
    if result.reason == "timeout":
        output += f"\n[the command was killed after {seconds} seconds; give it a longer timeout]"
        code = 124
    elif result.reason != "exit":
        output += f"\n[the command ended by {result.reason}{': ' + result.message if result.message else ''}]"
    return ExecuteResponse(output, code if code >= 0 else None, result.exec.truncated)
