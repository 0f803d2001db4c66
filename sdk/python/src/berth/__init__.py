"""Stateful Linux containers for AI agents: the SDK of berth.

    from berth import Sandbox

    with Sandbox.create() as sandbox:
        sandbox.files.put("data.csv")
        print(sandbox.run("wc -l data.csv").stdout)

Each class has a twin for asyncio, whose name begins with Async: `AsyncClient`, `AsyncSandbox`.
"""

from ._async.client import AsyncClient, AsyncSandboxes
from ._async.code import AsyncCode, AsyncContext
from ._async.command import AsyncCommand, AsyncPty
from ._async.files import AsyncFiles, AsyncWatch
from ._async.ports import AsyncPorts
from ._async.sandbox import AsyncSandbox
from ._sync.client import Client, Sandboxes
from ._sync.code import Code, Context
from ._sync.command import Command, Pty
from ._sync.files import Files, Watch
from ._sync.ports import Ports
from ._sync.sandbox import Sandbox
from .errors import (
    AlreadyExistsError, BerthError, CanceledError, ConflictError, ConnectionFailedError, DeadlineExceededError,
    ExpiredError, InternalError, InvalidArgumentError, MethodNotAllowedError, NotFoundError, PermissionDeniedError,
    QuotaExceededError, TooLargeError, TooManyRequestsError, UnauthenticatedError, UnavailableError, UnsupportedError,
)
from .forward import AsyncForward, Forward
from .results import (
    Chunk, CodeError, CodeFailedError, CodeResult, CommandFailedError, CommandResult, Output, OutputFile, Result,
    Skill, SkillVersion, StoredFile,
)
from .toolserver import AsyncToolServer, AsyncTools, Tool, Tools, ToolServer, tool
from .version import __version__

__all__ = [
    "AlreadyExistsError", "AsyncClient", "AsyncCode", "AsyncCommand", "AsyncContext", "AsyncFiles", "AsyncForward",
    "AsyncPorts", "AsyncPty", "AsyncSandbox", "AsyncSandboxes", "AsyncToolServer", "AsyncTools", "AsyncWatch",
    "BerthError", "CanceledError", "Chunk", "Client", "Code", "CodeError", "CodeFailedError", "CodeResult", "Command",
    "CommandFailedError", "CommandResult", "ConflictError", "ConnectionFailedError", "Context",
    "DeadlineExceededError", "ExpiredError", "Files", "Forward", "InternalError", "InvalidArgumentError",
    "MethodNotAllowedError", "NotFoundError", "Output", "OutputFile", "PermissionDeniedError", "Ports", "Pty",
    "QuotaExceededError", "Result", "Sandbox", "Sandboxes", "Skill", "SkillVersion", "StoredFile", "TooLargeError",
    "TooManyRequestsError", "Tool", "ToolServer", "Tools", "UnauthenticatedError", "UnavailableError",
    "UnsupportedError", "Watch", "__version__", "tool",
]
