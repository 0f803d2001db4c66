"""Types of the API: what methods answer, and what some of their arguments hold.

Made by dev/make_types.py from the daemon's OpenAPI document; do not edit. Times are in UTC. A field that is None was left
out by the daemon, and is left out of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

__all__ = [
    "AllowedTool", "Approval", "Artifact", "AuditCall", "AuditPort", "BashError", "BashOutput", "BashResult",
    "Build", "BuildCache", "BuildError", "BuildEvent", "BuildLogPart", "BuildProgressPart", "BuildStepState",
    "CallError", "CodeContext", "CodeTools", "Commit", "Container", "ContainerRef", "ContainerStats",
    "DaemonMessage", "Decision", "Difference", "Display", "End", "Error", "ErrorDetail", "Exec", "ExecResult",
    "FeedEvent", "FeedExec", "FileEvent", "FileInfo", "FoundFiles", "FoundLines", "GrepEvent", "GrepSummary",
    "Image", "ImageLine", "Info", "Isolation", "JobExec", "JobSummary", "Key", "KeyAndSecret", "KeyStatus",
    "KeyUsage", "Lease", "LeaseRequest", "Limits", "Logs", "Manifest", "Network", "NetworkSecret", "NewWebhook",
    "NextAction", "Outcome", "Output", "Port", "PortURL", "Progress", "PublicPorts", "Published", "PublishedPorts",
    "Quota", "QuotaChange", "Registry", "Shell", "Snapshot", "Stats", "StatsCPU", "StatsDisk", "StatsMemory",
    "StatsNetwork", "Tool", "ToolCall", "ToolConfiguration", "ToolField", "ToolProvider", "ToolRun", "ToolRunError",
    "ToolSpec", "ToolVariable", "Webhook", "WebhookDelivery", "WindowSize", "Workspace",
]


@dataclass(kw_only=True, slots=True)
class AllowedTool:
    """An AllowedTool is one tool that code may call. In a request, its name may stand in its place."""

    name: str
    approval: Literal["allow", "review"] | None = None
    """allow (default), or review: each call waits until a person approves that call."""


@dataclass(kw_only=True, slots=True)
class Approval:
    """An Approval is something that waits for a person's decision, or that a person has decided about."""

    id: str
    created_at: datetime
    item: str
    """Host and port of a connection, or the name of the tool."""
    kind: Literal["network", "tool_call", "tool_run"]
    state: Literal["parked", "approved", "refused", "expired", "canceled"]
    connections: int | None = None
    """How many connections wait for the decision."""
    container_id: str | None = None
    """A run may have none."""
    decision: Decision | None = None
    exec_id: str | None = None
    """Of a call: the command whose code makes it."""
    expires_at: datetime | None = None
    """Until when it can be decided."""
    for_: Literal["once", "life"] | None = None
    """Of a decided connection: once or life."""
    input: Any = None
    """Of a call or a run."""


@dataclass(kw_only=True, slots=True)
class Artifact:
    """An Artifact is one line of a job's manifest."""

    created_at: datetime
    """When it was first seen."""
    media_type: str
    mode: str
    modified_at: datetime
    origin: str
    """produced by a command, uploaded through the API, or edited by the editor tool."""
    path: str
    """Relative to the directory of the job."""
    sha256: str
    """In hex; empty where the file was too large or vanished before it could be read."""
    size_bytes: int
    type: Literal["file", "directory", "symlink", "other"]
    changed_by: str | None = None
    """ID of the exec that made the last change."""
    created_by: str | None = None
    """ID of the exec."""
    file_id: str | None = None
    """Where it was published to the Files API."""


@dataclass(kw_only=True, slots=True)
class AuditCall:
    """An AuditCall is what the audit log tells of a call of a tool."""

    input_bytes: int
    result_bytes: int
    seconds: float
    tool: str
    id: str | None = None
    """empty where it was refused before it had one"""
    error: str | None = None
    """the type of the error that the code got"""


@dataclass(kw_only=True, slots=True)
class AuditPort:
    """An AuditPort is a port of a container that a program has begun to listen on, or does not listen on any more."""

    address: str
    """That the program listened on, such as 127.0.0.1 or 0.0.0.0."""
    port: int
    pid: int | None = None
    """In the container; left out if unknown, as under gVisor."""
    program: str | None = None
    """Name of the process; secrets are replaced."""


@dataclass(kw_only=True, slots=True)
class BashError:
    """A BashError is a command that did not run to its end; the exec's end says why."""

    error_code: Literal[
        "invalid_tool_input", "unavailable", "too_many_requests", "execution_time_exceeded",
        "output_file_too_large", "file_not_found"
    ]
    type: str


@dataclass(kw_only=True, slots=True)
class BashOutput:
    """A BashOutput names one stored file that the command put into $OUTPUT_DIR."""

    file_id: str
    type: str


@dataclass(kw_only=True, slots=True)
class BashResult:
    """A BashResult is a command that ran to its end, whatever its return code."""

    content: list[BashOutput]
    """Stored files made of the files in $OUTPUT_DIR, sorted by path, which is the filename; never null."""
    return_code: int
    stderr: str
    stdout: str
    type: str


@dataclass(kw_only=True, slots=True)
class Build:
    """A Build is a build that runs or waits."""

    id: str
    """build_…"""
    name: str
    started_at: datetime
    state: Literal["waiting", "running"]
    """waiting: for an earlier build of the same owner"""


@dataclass(kw_only=True, slots=True)
class BuildCache:
    """BuildCache is what the daemon keeps of the caller's builds, so that later ones need not run the same steps
    again."""

    bytes: int
    entries: int


@dataclass(kw_only=True, slots=True)
class BuildError:
    """A BuildError says why a build failed."""

    code: Literal[
        "invalid_argument", "unauthenticated", "permission_denied", "not_found", "method_not_allowed",
        "already_exists", "conflict", "expired", "too_large", "too_many_requests", "quota_exceeded",
        "deadline_exceeded", "canceled", "unavailable", "unsupported", "internal"
    ] | None = None
    exit_code: int | None = None
    """of the command that failed"""
    item: str | None = None
    """What the error is about: an ID, a field, or a path in the container."""
    line: int | None = None
    """of the Dockerfile"""
    log: str | None = None
    """the last lines of its output, at most 4 KiB"""
    message: str | None = None
    op: str | None = None
    retry_after_seconds: int | None = None
    """When it makes sense to try again; also in the Retry-After header."""
    step: str | None = None
    """the name of the step that failed"""


@dataclass(kw_only=True, slots=True)
class BuildEvent:
    """A BuildEvent is one event of a build."""

    type: Literal["build", "step", "log", "progress", "warning", "cache", "image", "error"]
    build: Build | None = None
    cache: BuildCache | None = None
    error: BuildError | None = None
    image: Image | None = None
    log: BuildLogPart | None = None
    progress: BuildProgressPart | None = None
    step: BuildStepState | None = None
    warning: str | None = None


@dataclass(kw_only=True, slots=True)
class BuildLogPart:
    """A BuildLogPart is output of a step."""

    data: str
    """bytes that are not UTF-8 are replaced"""
    step: int
    """its number"""
    stream: Literal["stdout", "stderr"]


@dataclass(kw_only=True, slots=True)
class BuildProgressPart:
    """A BuildProgressPart is how far a part of a step is, in bytes."""

    done: int
    item: str
    step: int | None = None
    """its number"""
    total: int | None = None
    """0 if unknown"""


@dataclass(kw_only=True, slots=True)
class BuildStepState:
    """A BuildStepState is a step that has begun or ended."""

    name: str
    """such as [2/4] RUN make"""
    number: int
    """from 1, in the order in which steps were first seen"""
    state: Literal["running", "cached", "done", "failed"]
    error: str | None = None
    seconds: float | None = None
    """from its start to its end"""


@dataclass(kw_only=True, slots=True)
class CallError:
    """A CallError describes how a call failed: the type of the exception that the code gets, and its message."""

    message: str
    type: str


@dataclass(kw_only=True, slots=True)
class CodeContext:
    """A CodeContext describes a named interpreter of a container."""

    cells: int
    """Number of cells that the present interpreter has run."""
    container_id: str
    created_at: datetime
    language: str
    last_used_at: datetime
    name: str
    state: str
    """idle, busy, or ended: the next cell starts a new interpreter."""
    user: str
    """The user that it runs as."""
    cwd: str | None = None
    """Working directory that it was created with; none: the directory of its job."""
    exec_id: str | None = None
    """The interpreter as a command; none before the first cell."""
    note: str | None = None
    """Why the last interpreter ended."""


@dataclass(kw_only=True, slots=True)
class CodeTools:
    """CodeTools are the tools of the host that code in a container may call. Only listed tools can be called."""

    allow: list[Any] | None = None
    """Exact names of tools, or objects with name and approval; at most 128. The name "tools" is reserved."""
    max_calls: int | None = None
    """Maximum number of calls of one command or one context, 1 to 100,000; 0 is the default, 1000."""
    provider: ToolProvider | None = None
    """Who answers calls; default a client of the API."""
    timeout_seconds: float | None = None
    """Time limit of one call, without its wait for approval, up to 3600; 0 is the default, 60."""


@dataclass(kw_only=True, slots=True)
class Commit:
    """The name of an image to make of a snapshot."""

    name: str | None = None
    """Default snapshot:NAME."""


@dataclass(kw_only=True, slots=True)
class Container:
    """A Container describes a container."""

    id: str
    created_at: datetime
    expires_at: datetime
    """When its lease ends if it is not used, never past max_expires_at. Each use of a rolling lease moves it."""
    generation: int
    """Counts the starts."""
    idle_timeout_seconds: int
    image: str
    image_digest: str
    isolation: Isolation
    """As of the last start."""
    labels: dict[str, str]
    last_used_at: datetime
    lease: Lease
    limits: Limits
    max_expires_at: datetime
    """When it is removed with its files."""
    max_lifetime_seconds: int
    network: Network
    running_execs: int
    runtime_class: str
    secret_names: list[str]
    """Names of its secrets. Their values are never returned."""
    state: Literal["creating", "running", "paused", "stopped", "expired"]
    workspace_id: str
    code_tools: CodeTools | None = None
    """Without its secrets; left out where there are none."""
    differences: list[Difference] | None = None
    """What that container has and the request asked for otherwise, by field. Left out where nothing differs."""
    existing: bool | None = None
    """In the answer to a create with existing: the container was there before."""
    name: str | None = None
    """Left out where it has none."""
    network_secrets: dict[str, NetworkSecret] | None = None
    """Without the values."""
    next: NextAction | None = None
    """What happens to it next without another use. Left out of an expired one."""
    public_ports: PublicPorts | None = None
    """Left out where there are none."""
    sudo: bool | None = None
    """Its user may become its root by sudo."""


@dataclass(kw_only=True, slots=True)
class ContainerRef:
    """A ContainerRef names the container in which something ran."""

    id: str
    expires_at: datetime
    """When the container's lease ends if it is not used."""


@dataclass(kw_only=True, slots=True)
class ContainerStats:
    """What a container uses."""

    current: Stats
    data: list[Stats]
    """Samples, oldest first."""


@dataclass(kw_only=True, slots=True)
class DaemonMessage:
    """A DaemonMessage is one message to a client that answers calls of tools. Its type decides which fields are set.
    """

    type: str
    """serving, call, cancel or error."""
    call_id: str | None = None
    error: Error | None = None
    exec_id: str | None = None
    """For call: the command that makes it."""
    input: Any = None
    tool: str | None = None
    tools: list[str] | None = None
    """For serving: the names that code may call."""


@dataclass(kw_only=True, slots=True)
class Decision:
    """A Decision is what a person decided about a run of a stored tool, or about a call of a tool."""

    at: datetime
    by: str
    """The API key that decided."""
    reason: str | None = None
    """Why it was refused."""


@dataclass(kw_only=True, slots=True)
class Difference:
    """A Difference is a field of a request for an existing container that the container does not meet."""

    asked: str
    """What the request asked for."""
    field: str
    """Such as image, limits.cpus or labels.team."""
    have: str
    """What the container has, for people. Never a value of env or secrets."""


@dataclass(kw_only=True, slots=True)
class Display:
    """A Display is one result of a running cell. The outcome at its end has it again, as far as there is room."""

    main: bool
    """It is the value of the last expression."""
    rich: dict[str, Any]
    """By media type."""
    text: str
    """As text."""


@dataclass(kw_only=True, slots=True)
class End:
    """An End is how an exec ended."""

    cpu_seconds: float
    """Of its processes that have ended; 0 when unknown, as for lost and host_restart."""
    peak_memory_bytes: int
    """Largest resident set of one of those processes, never less than that of the guest; 0 when unknown."""
    reason: Literal[
        "exit", "signal", "timeout", "out_of_memory", "disk_quota", "pid_limit", "output_limit", "killed",
        "canceled", "expired", "stopped", "host_restart", "lost", "not_started"
    ]
    return_code: int
    """The code, 128+n for signal n, or -1 where it is unknown."""
    leftover: int | None = None
    """Number of background processes that it left running."""
    message: str | None = None
    """One sentence for people, where the reason does not say everything."""
    signal: str | None = None
    """Such as SIGKILL, when a signal ended it."""


@dataclass(kw_only=True, slots=True)
class Error:
    """An Error crosses guest, core and edges unchanged. Item names the thing the error is about as the caller knows
    it (an ID, a field, a path inside the container); Message says what is wrong and what to do, in one sentence, and
    never shows a path of the host."""

    code: Literal[
        "invalid_argument", "unauthenticated", "permission_denied", "not_found", "method_not_allowed",
        "already_exists", "conflict", "expired", "too_large", "too_many_requests", "quota_exceeded",
        "deadline_exceeded", "canceled", "unavailable", "unsupported", "internal"
    ]
    message: str
    item: str | None = None
    """What the error is about: an ID, a field, or a path in the container."""
    op: str | None = None
    retry_after_seconds: int | None = None
    """When it makes sense to try again; also in the Retry-After header."""


@dataclass(kw_only=True, slots=True)
class ErrorDetail:
    """An ErrorDetail describes how code failed."""

    message: str
    name: str
    """Name of the exception, or why the interpreter ended: exit, signal, timeout, out_of_memory and the other reasons
    of a command."""
    return_code: int | None = None
    """Of an interpreter that ended."""
    traceback: str | None = None


@dataclass(kw_only=True, slots=True)
class Exec:
    """An Exec describes one run of a command."""

    id: str
    container_id: str
    end: End | None = None
    """How it ended; null while it runs."""
    ended_at: datetime | None = None
    job_id: str
    started_at: datetime
    state: Literal["running", "ended"]
    stderr_bytes: int
    stdout_bytes: int
    """Written so far, kept or not."""
    truncated: bool
    """The result leaves out some of the output."""
    user: str
    argv: list[str] | None = None
    background: bool | None = None
    command: str | None = None
    generation: int | None = None
    """Generation of the container in which it ran."""
    open_stdin: bool | None = None
    """Its standard input takes later writes."""
    pid: int | None = None
    """Process ID in the container's own numbering; of the shell, if it ran in one. Left out for one without a
    process."""
    shell: str | None = None
    terminal: bool | None = None
    """It has a terminal."""


@dataclass(kw_only=True, slots=True)
class ExecResult:
    """An ExecResult is the answer to a command that has ended. Its result is the block that hosted code execution
    answers with."""

    container: ContainerRef
    exec: Exec
    result: Any
    notes: list[str] | None = None
    """What else the caller should know, such as a file that could not be published."""
    partial: Output | None = None
    """What was written, where result is an error."""


@dataclass(kw_only=True, slots=True)
class FeedEvent:
    """A FeedEvent is something that happened to a container, or to another thing of its owner."""

    id: str
    """Place of the event in the order of all events; empty in a gap without one. Send it as after or Last-Event-ID to
    continue behind this event."""
    owner: str
    timestamp: datetime
    type: Literal[
        "container.created", "container.started", "container.stopped", "container.paused", "container.resumed",
        "container.changed", "container.expired", "container.deleted", "container.reset", "container.restored",
        "container.forked", "snapshot.created", "snapshot.deleted", "exec.started", "exec.ended",
        "files.changed", "file.stored", "file.deleted", "approval.parked", "approval.decided",
        "tool_call.ended", "port.opened", "port.closed", "gap", "webhook.disabled"
    ]
    actor: str | None = None
    """The ID of the API key that caused it, or the part of the daemon that did."""
    container_id: str | None = None
    decision: str | None = None
    """Of approval.decided: approve or refuse."""
    exec: FeedExec | None = None
    """Of exec.started and exec.ended."""
    exec_id: str | None = None
    file_ids: list[str] | None = None
    """Of file.stored and file.deleted."""
    generation: int | None = None
    """The generation of the container; left out if it has none."""
    item: str | None = None
    """What it happened to, if that is no container and no command: a file, a path, a call, a run, a snapshot, an
    address with a port. Of container.forked, the container that it is a copy of."""
    job_id: str | None = None
    """Of files.changed: the job in whose directory the paths are."""
    note: str | None = None
    """For people."""
    paths: list[str] | None = None
    """Of files.changed: paths in the job's directory, or inside the container if they are absolute."""
    port: AuditPort | None = None
    """Of port.opened and port.closed."""
    request_id: str | None = None
    tool_call: AuditCall | None = None
    """Of tool_call.ended."""


@dataclass(kw_only=True, slots=True)
class FeedExec:
    """A FeedExec is what an event tells of a command."""

    command: str
    """Cut after 16 KiB; secrets are replaced."""
    job_id: str
    user: str
    cpu_seconds: float | None = None
    pid: int | None = None
    """Process ID in the container's own numbering; of the shell, if it ran in one. Left out for one without a
    process."""
    reason: Literal[
        "exit", "signal", "timeout", "out_of_memory", "disk_quota", "pid_limit", "output_limit", "killed",
        "canceled", "expired", "stopped", "host_restart", "lost", "not_started"
    ] | None = None
    """This and what follows only of a command that has ended."""
    return_code: int | None = None
    seconds: float | None = None
    stderr_bytes: int | None = None
    stdout_bytes: int | None = None


@dataclass(kw_only=True, slots=True)
class FileEvent:
    """A FileEvent is a change in a watched directory."""

    path: str
    """Absolute; bytes that are not UTF-8 show as U+FFFD."""
    type: Literal["start", "create", "write", "remove", "rename", "chmod", "overflow"]
    directory: bool | None = None
    """It is a directory."""
    entry: FileInfo | None = None
    """The file soon after the event, if requested and if it still exists."""
    name: str | None = None
    """Path relative to the watched directory; empty for that directory."""


@dataclass(kw_only=True, slots=True)
class FileInfo:
    """A FileInfo describes one file inside a container. It never follows a link at the end of the path."""

    changed_at: datetime
    """Change of the inode, which code in the container cannot set."""
    gid: int
    mode: str
    """Octal permission bits with set-id and sticky, such as 0644."""
    modified_at: datetime
    path: str
    """Absolute; bytes that are not UTF-8 show as U+FFFD."""
    size_bytes: int
    type: Literal["file", "directory", "symlink", "other"]
    uid: int
    attributes: dict[str, str] | None = None
    """Extended attributes of the user's space without "user.", as far as they are text, of files and directories."""
    group: str | None = None
    """Name of the group in the container, where there is one."""
    owner: str | None = None
    """Name of the user in the container, where there is one."""
    path_base64: bytes | None = None
    """The true path, where it is not UTF-8."""
    sha256: str | None = None
    """In hex, where it was asked for."""
    target: str | None = None
    """Target of a symbolic link."""
    target_type: Literal["file", "directory", "symlink", "other"] | None = None
    """What a symbolic link leads to; left out if there is nothing."""


@dataclass(kw_only=True, slots=True)
class FoundFiles:
    """One page of what a search found."""

    data: list[FileInfo]
    has_more: bool
    next_after: str | None = None
    """Value of after for the next page; null on the last one."""
    skipped_directories: int | None = None
    """Directories that were left out: unreadable, too deep, or with too long a path."""


@dataclass(kw_only=True, slots=True)
class FoundLines:
    """The lines that a search has found."""

    data: list[GrepEvent]
    """Matches and their context, by file and line."""
    summary: GrepSummary


@dataclass(kw_only=True, slots=True)
class GrepEvent:
    """A GrepEvent is a line that a search for text has found, or its end."""

    type: Literal["match", "context", "end"]
    column: int | None = None
    """Of the first match, in bytes from 1."""
    cut: bool | None = None
    """The line is longer than text."""
    length: int | None = None
    """Of the first match, in bytes."""
    line: int | None = None
    """From 1."""
    path: str | None = None
    """Absolute; bytes that are not UTF-8 show as U+FFFD."""
    path_base64: bytes | None = None
    """The true path, where it is not UTF-8."""
    summary: GrepSummary | None = None
    text: str | None = None
    """The line, or the part of a long one around the match, at most 2,000 bytes."""
    text_column: int | None = None
    """Where text begins in the line, if not at 1."""


@dataclass(kw_only=True, slots=True)
class GrepSummary:
    """A GrepSummary is what a search for text has done."""

    binary_files: int
    """Files that were not searched, or not to the end, for a NUL byte."""
    files: int
    """Files with a match."""
    matches: int
    """Lines with a match."""
    searched: int
    """Files that were searched."""
    skipped_directories: int
    skipped_files: int
    """Files that the user may not read."""
    truncated: bool
    """The search ended early, at a limit of matches, output or time."""


@dataclass(kw_only=True, slots=True)
class Image:
    """An Image is an unpacked root file system that containers can start from."""

    created_at: datetime
    """when it was imported or pulled"""
    digest: str
    """sha256:… of its manifest"""
    name: str
    """as given at import or pull"""
    platform: str
    """linux/amd64"""
    size_bytes: int
    """of its compressed layers"""


@dataclass(kw_only=True, slots=True)
class ImageLine:
    """One line of the answer to an import, a pull or a push: a step, or at the end the image or an error."""

    done: int | None = None
    error: Error | None = None
    image: Image | None = None
    item: str | None = None
    stage: str | None = None
    total: int | None = None


@dataclass(kw_only=True, slots=True)
class Info:
    """Info is what a daemon reports about itself. The edge fills zero fields with the defaults of the core."""

    default_image: str
    default_limits: Limits
    """Also the maximum that a container may ask for."""
    default_runtime_class: Literal["runc", "gvisor"]
    """Class of containers that ask for none."""
    idle_timeout_seconds: int
    max_file_bytes: int
    """Of one stored file."""
    max_lifetime_seconds: int
    network_max: Literal["none", "allowlist", "open"]
    """The widest network that a container may ask for."""
    ports_max: Literal["private", "signed", "public"]
    """The widest access to ports: private, signed or public."""
    runtime_classes: list[Literal["runc", "gvisor"]]
    """That containers may have here."""
    version: str


@dataclass(kw_only=True, slots=True)
class Isolation:
    """Isolation is what separates a container from its host, as the kernel has it and not as it was configured. It is
    found out at each start; a container that has never been up has the zero Isolation."""

    host_uid: int
    """what its root is there; -1 when unknown"""
    kernel: str
    """name and release as seen inside"""
    network: str
    """NetworkNone; ThroughProxy where the daemon carries what goes out; "" when unknown"""
    no_new_privs: bool
    """no program in it can gain privileges"""
    own_counts: bool
    """what the kernel counts for each user, inotify for one, it shares with nobody"""
    seccomp: bool
    """its system calls are filtered"""
    user_namespace: bool
    """its root is nobody on the host"""


@dataclass(kw_only=True, slots=True)
class JobExec:
    """A JobExec is the log line of one command in a manifest."""

    id: str
    command: str
    """argv joined for commands without bash; secrets redacted, cut at 4 KiB"""
    ended_at: datetime | None = None
    produced: list[str]
    """paths it created or changed"""
    reason: Literal[
        "exit", "signal", "timeout", "out_of_memory", "disk_quota", "pid_limit", "output_limit", "killed",
        "canceled", "expired", "stopped", "host_restart", "lost", "not_started"
    ]
    return_code: int
    started_at: datetime
    stderr: str
    """its last 2 KiB"""


@dataclass(kw_only=True, slots=True)
class JobSummary:
    """A JobSummary is one line of a list of jobs."""

    created_at: datetime
    files: int
    job_id: str
    size_bytes: int
    updated_at: datetime


@dataclass(kw_only=True, slots=True)
class Key:
    """A Key describes an API key. Its secret is not stored."""

    id: str
    """Names the key; it is no secret."""
    admin: bool
    """May make and revoke keys, and change what concerns the whole daemon, such as images."""
    created_at: datetime
    expires_at: datetime | None = None
    """null: never."""
    file: bool
    """The key in the daemon's key file, which is revoked by replacing that file."""
    last_used_at: datetime | None = None
    """null: never. After a crash of the daemon it may be some seconds behind."""
    name: str
    owner: str
    """The tenant that owns everything made with it."""
    quota: Quota
    revoked_at: datetime | None = None
    """null: it is not revoked."""


@dataclass(kw_only=True, slots=True)
class KeyAndSecret:
    """A NewKey is a key that was just made, with its secret."""

    id: str
    """Names the key; it is no secret."""
    admin: bool
    """May make and revoke keys, and change what concerns the whole daemon, such as images."""
    created_at: datetime
    expires_at: datetime | None = None
    """null: never."""
    file: bool
    """The key in the daemon's key file, which is revoked by replacing that file."""
    last_used_at: datetime | None = None
    """null: never. After a crash of the daemon it may be some seconds behind."""
    name: str
    owner: str
    """The tenant that owns everything made with it."""
    quota: Quota
    revoked_at: datetime | None = None
    """null: it is not revoked."""
    secret: str
    """What requests carry. Only this answer has it."""


@dataclass(kw_only=True, slots=True)
class KeyStatus:
    """A KeyStatus is a key and what it uses."""

    id: str
    """Names the key; it is no secret."""
    admin: bool
    """May make and revoke keys, and change what concerns the whole daemon, such as images."""
    created_at: datetime
    expires_at: datetime | None = None
    """null: never."""
    file: bool
    """The key in the daemon's key file, which is revoked by replacing that file."""
    last_used_at: datetime | None = None
    """null: never. After a crash of the daemon it may be some seconds behind."""
    name: str
    owner: str
    """The tenant that owns everything made with it."""
    quota: Quota
    revoked_at: datetime | None = None
    """null: it is not revoked."""
    usage: KeyUsage


@dataclass(kw_only=True, slots=True)
class KeyUsage:
    """A KeyUsage is what a key uses of its quota."""

    cpu_resets_at: datetime
    """The next midnight UTC."""
    cpu_seconds_today: float
    sessions: int
    storage_bytes: int
    owner_disk_bytes: int | None = None
    """Bytes on disk of all containers and snapshots of the owner; what they share counts once. Left out where the
    disk does not count that, as before Linux 6.12."""
    owner_disk_limit_bytes: int | None = None
    """What they may have together. Left out where there is no bound."""


@dataclass(kw_only=True, slots=True)
class Lease:
    """A Lease says how long a container lives, and what happens when that is over."""

    at_end: Literal["stop", "pause", "remove"]
    ends_at: datetime
    """The same as expires_at."""
    mode: Literal["rolling", "absolute"]


@dataclass(kw_only=True, slots=True)
class LeaseRequest:
    """A LeaseRequest asks for a lease, or for a change of one. What is left out stays as it is; a new container's
    lease is rolling and stops it."""

    at_end: Literal["stop", "pause", "remove"] | None = None
    """What happens at its end: stop, pause or remove. Files are removed with the container."""
    ends_at: datetime | None = None
    """When it ends, not later than max_expires_at. Of a rolling lease, a later use moves it. May be earlier than
    before. Excludes ends_in_seconds."""
    ends_in_seconds: int | None = None
    """When it ends, in seconds from now. 0 ends it now, which a new container cannot ask for."""
    mode: Literal["rolling", "absolute"] | None = None
    """What moves its end: uses (rolling), or only a change (absolute). Running commands do not keep a container whose
    absolute lease ends. One that becomes absolute without an end ends after the idle timeout."""


@dataclass(kw_only=True, slots=True)
class Limits:
    """Limits bound what one container may use. In Go, 0 is the default of the daemon, which is also the maximum. A
    request leaves a limit out for it."""

    cpus: float | None = None
    """Cores, at least 0.01."""
    disk_bytes: int | None = None
    """Size of the workspace, and again of the writable layer, metadata included; at least 16 MiB."""
    memory_bytes: int | None = None
    """At least 16 MiB; there is no swap."""
    open_files: int | None = None
    """Per process, at least 256."""
    pids: int | None = None
    """Processes and threads, at least 16."""


@dataclass(kw_only=True, slots=True)
class Logs:
    """Logs are the lines that code printed. Each line keeps its newline, so joined lines are the original output."""

    stderr: list[str]
    stdout: list[str]
    """Line by line, each with its end."""


@dataclass(kw_only=True, slots=True)
class Manifest:
    """A Manifest lists what a job's directory holds and who made it. /workspace/.berth/<job_id>.json has the same
    JSON."""

    container_id: str
    """The last one that worked on it."""
    created_at: datetime
    execs: list[JobExec]
    files: list[Artifact]
    job_id: str
    truncated: bool
    """The directory holds more than a manifest lists."""
    updated_at: datetime
    workspace_id: str


@dataclass(kw_only=True, slots=True)
class Network:
    """A Network is what a container may reach. In a request, a mode may stand in its place: "open"."""

    allow: list[str] | None = None
    """Hosts such as api.github.com, api.example.com:8443 or *.example.com, where the star stands for one label.
    Without a port, 80 and 443 are allowed."""
    ask: bool | None = None
    """Whether a connection to a host that is not listed waits for a person's decision; see GET /v1/approvals."""
    deny: list[str] | None = None
    """Hosts that are refused without asking, written as in allow. They are refused even if allow has them."""
    mode: Literal["none", "allowlist", "open"] | None = None
    """none: nothing. allowlist: the hosts in allow. open: any public host. Default allowlist if allow has hosts,
    otherwise none."""


@dataclass(kw_only=True, slots=True)
class NetworkSecret:
    """A NetworkSecret is a secret that code in a container never has. Its environment has a placeholder, and the
    proxy puts the value into requests to these hosts alone."""

    hosts: list[str]
    """Written as in the allow list of a network."""
    value: str | None = None
    """At least 4 bytes. It is never returned."""


@dataclass(kw_only=True, slots=True)
class NewWebhook:
    """A NewWebhook is a webhook with its secret, which only this answer has."""

    id: str
    created_at: datetime
    deliveries: list[WebhookDelivery]
    """The last attempts, newest last."""
    enabled: bool
    failing_since: datetime | None = None
    """Since when nothing was delivered, and when the next attempt is; null while it works."""
    next_attempt: datetime | None = None
    secret: str
    """Verifies signatures; begins with whsec_."""
    types: list[str]
    """Empty for all."""
    url: str
    container_id: str | None = None
    description: str | None = None
    disabled_reason: str | None = None
    """Why it was disabled."""


@dataclass(kw_only=True, slots=True)
class NextAction:
    """A NextAction is what happens to a container by itself if nobody uses it."""

    action: Literal["stop", "pause", "remove"]
    at: datetime


@dataclass(kw_only=True, slots=True)
class Outcome:
    """An Outcome is the result of running code. Other systems answer with results, logs and error."""

    duration_ms: float
    exec_id: str
    """The interpreter as a command."""
    files: list[BashOutput]
    """Stored files made of the files in $OUTPUT_DIR; of a context, when its interpreter ends."""
    logs: Logs
    results: list[str]
    """The value of the last expression, preceded by what else the code showed, as text."""
    rich: list[dict[str, Any]]
    """The same results by media type, in the same order. Text is text, an image base64, and JSON is JSON."""
    truncated: bool
    """Some of the output or of the results was left out."""
    container: ContainerRef | None = None
    """The container, unless it was made for this code alone."""
    context: str | None = None
    error: str | None = None
    """The traceback or another explanation, in one text."""
    error_detail: ErrorDetail | None = None
    execution_count: int | None = None
    """Number of the cell in the present interpreter of its context, from 1."""
    main_result: int | None = None
    """Index in results of the value of the last expression, which is the last result. Absent: the code gave no value.
    """
    notes: list[str] | None = None


@dataclass(kw_only=True, slots=True)
class Output:
    """An Output is what a command wrote, as text; bytes that are not UTF-8 become U+FFFD."""

    stderr: str
    stdout: str


@dataclass(kw_only=True, slots=True)
class Port:
    """Port is a port of a container that a program listens on."""

    address: str
    """That the program listens on, such as 127.0.0.1 or 0.0.0.0."""
    pid: int
    """In the container; 0 if unknown, as under gVisor."""
    port: int
    program: str | None = None
    """Name of the process."""
    public: bool | None = None
    """Anyone may send requests to it."""
    url: str | None = None
    """Of the port's own host name, if the daemon has a domain. It needs an API key, or a signed URL, unless the port
    is public."""


@dataclass(kw_only=True, slots=True)
class PortURL:
    """A PortURL is a signed URL: who has it may use one port of a container until a time. It ends with the container,
    and with the API key that asked for it."""

    expires_at: datetime
    url: str


@dataclass(kw_only=True, slots=True)
class Progress:
    """A Progress is one event of a running cell."""

    type: str
    """start, stdout, stderr, gap, display, result or error."""
    data: str | None = None
    data_base64: bytes | None = None
    """Output that is not UTF-8."""
    display: Display | None = None
    """What the code showed, when it showed it."""
    error: Error | None = None
    exec_id: str | None = None
    """The interpreter as a command, in the first message."""
    execution_count: int | None = None
    """Number of the cell in the present interpreter, in the first message."""
    offset: int | None = None
    """In bytes from the beginning of the cell's stream."""
    result: Outcome | None = None
    stream: str | None = None
    """For a gap: stdout or stderr."""
    until: int | None = None
    """Where a gap ends."""


@dataclass(kw_only=True, slots=True)
class PublicPorts:
    """PublicPorts are ports of a container that take requests without any credential. The zero PublicPorts are none.
    """

    all: bool | None = None
    """Every port."""
    ports: list[int] | None = None
    """At most 100 ports, sorted."""


@dataclass(kw_only=True, slots=True)
class Published:
    """A file of a job that became a stored file."""

    created_at: datetime
    expires_at: datetime | None = None
    file_id: str
    filename: str
    mime_type: str
    sha256: str
    size_bytes: int


@dataclass(kw_only=True, slots=True)
class PublishedPorts:
    """PublishedPorts are the public ports of a container after a change."""

    all: bool
    """Every port is public."""
    ports: list[int]
    """Ports that are public by themselves, sorted."""
    url: str | None = None
    """Of the port that was made public."""


@dataclass(kw_only=True, slots=True)
class Quota:
    """A Quota bounds what may be done with an API key. A field that is 0 or left out does not bound."""

    burst: int | None = None
    """Requests at once after a pause; 0 is one second's worth, at least 1."""
    cpu_seconds_per_day: float | None = None
    """CPU time of the commands it started, from midnight UTC; counted when a command ends."""
    requests_per_second: float | None = None
    """On average."""
    sessions: int | None = None
    """Containers at once that it made and that have not expired."""
    storage_bytes: int | None = None
    """Size of all stored files that it made."""


@dataclass(kw_only=True, slots=True)
class QuotaChange:
    """A QuotaChange changes the bounds that it has; 0 removes one."""

    burst: int | None = None
    cpu_seconds_per_day: float | None = None
    requests_per_second: float | None = None
    sessions: int | None = None
    storage_bytes: int | None = None


@dataclass(kw_only=True, slots=True)
class Registry:
    """A Registry is an image registry that the daemon has credentials for."""

    host: str
    """with its port, if it is not 443, such as ghcr.io; docker.io is Docker Hub"""
    updated_at: datetime
    username: str


@dataclass(kw_only=True, slots=True)
class Shell:
    """A persistent shell of a container."""

    busy: bool
    calls: int
    cwd: str
    """Empty where it cannot be read."""
    name: str
    pid: int
    """As the container counts."""
    started_at: datetime
    user: str


@dataclass(kw_only=True, slots=True)
class Snapshot:
    """A Snapshot has all files of a container as of one moment: its workspace, and what it has written elsewhere. It
    stays when the container goes. It has no processes, environment or secrets."""

    id: str
    container_id: str
    """The container that it was taken of, which may be gone."""
    created_at: datetime
    image: str
    image_digest: str
    labels: dict[str, str]
    limits: Limits
    """Likewise."""
    runtime_class: str
    """Of the container, and of containers made of the snapshot that ask for nothing else."""
    exclusive_bytes: int | None = None
    """Bytes of size_bytes that nothing else has: what its removal frees. Left out likewise."""
    expires_at: datetime | None = None
    """Left out where it stays until it is deleted."""
    name: str | None = None
    """Left out where it has none."""
    size_bytes: int | None = None
    """Bytes of its files, those too that it shares with containers and other snapshots. Left out where the disk
    counts otherwise: with simple quotas, which are the default from Linux 6.12 on."""


@dataclass(kw_only=True, slots=True)
class Stats:
    """Stats are what a container uses at one moment. A number that is not known is null."""

    container_id: str
    cpu: StatsCPU
    disk: StatsDisk
    generation: int
    """Generation that the counters of CPU time belong to."""
    memory: StatsMemory
    network: StatsNetwork
    processes: int | None = None
    """Processes and threads; null under gVisor, whose own threads the host counts instead."""
    processes_limit: int
    running_execs: int
    runtime_class: str
    state: Literal["creating", "running", "paused", "stopped", "expired"]
    timestamp: datetime
    name: str | None = None


@dataclass(kw_only=True, slots=True)
class StatsCPU:
    """StatsCPU is CPU time."""

    limit_cpus: float
    percent: float | None = None
    """Of one core, on average since the sample before: 200 is two cores. Null in the first sample of a generation."""
    seconds: float | None = None
    """Since the generation started."""
    throttled_seconds: float | None = None
    """For which the limit held processes back."""


@dataclass(kw_only=True, slots=True)
class StatsDisk:
    """StatsDisk is disk space in bytes. The limit is for the workspace, and again for the layer."""

    layer_bytes: int | None = None
    limit_bytes: int
    workspace_bytes: int | None = None


@dataclass(kw_only=True, slots=True)
class StatsMemory:
    """StatsMemory is memory in bytes."""

    cache_bytes: int | None = None
    """File cache."""
    limit_bytes: int
    used_bytes: int | None = None
    """Without file cache that the kernel can drop at once."""


@dataclass(kw_only=True, slots=True)
class StatsNetwork:
    """StatsNetwork is what the container exchanged with other hosts since the daemon started, in bytes of finished
    requests."""

    received_bytes: int
    sent_bytes: int


@dataclass(kw_only=True, slots=True)
class Tool:
    """A Tool is one version of a stored tool."""

    id: str
    approval_action: str
    configuration: ToolConfiguration
    created_at: datetime
    description: str
    env_variable_names: list[str]
    name: str
    tool_type: str
    updated_at: datetime
    """When the version was made."""
    version: int
    notes: list[str] | None = None


@dataclass(kw_only=True, slots=True)
class ToolCall:
    """A ToolCall is one call of a tool by code in a container. Secrets of the container are replaced in all fields.
    """

    id: str
    container_id: str
    created_at: datetime
    exec_id: str
    input_bytes: int
    result_bytes: int
    state: Literal["parked", "approved", "running", "succeeded", "failed", "refused", "expired", "canceled", "lost"]
    tool: str
    decision: Decision | None = None
    ended_at: datetime | None = None
    error: CallError | None = None
    expires_at: datetime | None = None
    """Until when a call that waits for approval can be approved."""
    input: Any = None
    """Of a call that needs approval."""
    started_at: datetime | None = None
    """When the provider could have received it."""


@dataclass(kw_only=True, slots=True)
class ToolConfiguration:
    """A ToolConfiguration says what a stored tool runs, and how."""

    code: str
    """Python that defines run(input), at most 96 KiB."""
    type: str
    """"CodeRunner"
    """
    allow_network: bool | None = None
    """Whether it may reach any public host through the proxy of the daemon; otherwise it reaches nothing. Where the
    daemon gives containers no such network, running the tool is a 501."""
    env_hosts: dict[str, list[str]] | None = None
    """Variables of which the code sees a placeholder: the proxy puts the value into requests to these hosts alone."""
    env_variables: Any = None
    """Environment of the tool's process alone. The values are sealed on disk and never returned. It may also be a
    list of objects with name and value."""
    input_schema: list[ToolField] | None = None
    """The fields that an input may have; others are dropped. Without it, the whole input is passed."""
    limits: Limits | None = None
    output_schema: list[ToolField] | None = None
    """If set, run has to return an object with these fields; it may have more."""
    runtime: Literal["python"] | None = None
    """"python", which is the default."""
    runtime_class: str | None = None
    timeout_seconds: float | None = None
    """0.1 to 3600; 0 is the default, 30."""


@dataclass(kw_only=True, slots=True)
class ToolField:
    """A ToolField is one field of a stored tool's input or output, of an OBJECT in it, or an item of an ARRAY."""

    field_type: Literal["STRING", "INTEGER", "NUMBER", "BOOLEAN", "ARRAY", "OBJECT"]
    description: str | None = None
    enum_values: list[Any] | None = None
    """The values that are allowed; default all."""
    format: str | None = None
    """For readers; it is not checked."""
    items_schema: ToolField | None = None
    """The items of an ARRAY; without it and items_type they may be anything."""
    items_type: Literal["STRING", "INTEGER", "NUMBER", "BOOLEAN", "ARRAY", "OBJECT"] | None = None
    """Type of the items of an ARRAY, if there is no more to say about them."""
    max_items: int | None = None
    """Of an ARRAY."""
    maximum: float | None = None
    """Of an INTEGER or NUMBER."""
    min_items: int | None = None
    """Of an ARRAY."""
    minimum: float | None = None
    """Of an INTEGER or NUMBER."""
    name: str | None = None
    """Ignored in items_schema, which may leave it out."""
    properties: list[ToolField] | None = None
    """The fields of an OBJECT; others are dropped from an input. Without it they may be anything."""
    required: bool | None = None
    title: str | None = None


@dataclass(kw_only=True, slots=True)
class ToolProvider:
    """A ToolProvider answers calls of tools. The values of headers and the secret are sealed on disk and never
    returned."""

    headers: dict[str, str] | None = None
    """Sent with each request to the server, such as Authorization."""
    secret: str | None = None
    """For http, at least 16 bytes. Requests have the headers Berth-Timestamp and Berth-Signature, which is "sha256="
    and the hex HMAC-SHA-256 of the timestamp, a dot and the body."""
    tools: list[ToolSpec] | None = None
    """For http: the tools that the server answers."""
    type: Literal["client", "http", "mcp"] | None = None
    """client (default): a client of the API on the websocket /v1/containers/{id}/tools. http: the daemon posts each
    call to url, signed. mcp: the server at url speaks the Model Context Protocol over streamable HTTP."""
    url: str | None = None
    """Address of the server. The operator of the daemon allows servers with --tools-callback."""


@dataclass(kw_only=True, slots=True)
class ToolRun:
    """A ToolRun is one run of a stored tool. Values of the tool's secrets are replaced in all fields."""

    id: str
    created_at: datetime
    duration_ms: float
    files: list[BashOutput]
    """Stored files made of the files in $OUTPUT_DIR."""
    input: Any
    """The fields that the schema has."""
    logs: Logs
    requested_by: str
    """The API key that asked for it."""
    state: Literal["parked", "running", "succeeded", "failed", "refused", "expired", "lost"]
    tool: str
    """Name of the tool."""
    tool_id: str
    version: int
    container: str | None = None
    """The container that the request named."""
    decision: Decision | None = None
    ended_at: datetime | None = None
    error: ToolRunError | None = None
    exec_id: str | None = None
    expires_at: datetime | None = None
    """Until when a run that waits for approval can be approved."""
    notes: list[str] | None = None
    output: Any = None
    """What run returned. Only where the run succeeded."""
    started_at: datetime | None = None
    truncated: bool | None = None
    """Some of the logs was left out."""


@dataclass(kw_only=True, slots=True)
class ToolRunError:
    """A ToolRunError describes how a run failed."""

    message: str
    """for people"""
    type: str
    """exception, syntax_error, no_run, exit, signal, timeout, out_of_memory, not_serializable, output_too_large,
    invalid_output, refused, expired, lost, or what kept the code from running."""
    field: str | None = None
    """Field of the output that is wrong."""
    name: str | None = None
    """of the exception"""
    return_code: int | None = None
    """of an interpreter that ended"""
    traceback: str | None = None
    """of the tool's own frames"""


@dataclass(kw_only=True, slots=True)
class ToolSpec:
    """A ToolSpec describes a tool."""

    name: str
    description: str | None = None
    input_schema: Any = None
    """JSON Schema, draft 2020-12, of the input, which is an object; default any object."""
    output_schema: Any = None
    """JSON Schema of the result; default anything."""


@dataclass(kw_only=True, slots=True)
class ToolVariable:
    """A ToolVariable is one variable of an environment that is sent as a list."""

    name: str
    value: str


@dataclass(kw_only=True, slots=True)
class Webhook:
    """A Webhook is a URL that events are posted to."""

    id: str
    created_at: datetime
    deliveries: list[WebhookDelivery]
    """The last attempts, newest last."""
    enabled: bool
    failing_since: datetime | None = None
    """Since when nothing was delivered, and when the next attempt is; null while it works."""
    next_attempt: datetime | None = None
    types: list[str]
    """Empty for all."""
    url: str
    container_id: str | None = None
    description: str | None = None
    disabled_reason: str | None = None
    """Why it was disabled."""


@dataclass(kw_only=True, slots=True)
class WebhookDelivery:
    """A WebhookDelivery is one attempt to deliver an event."""

    at: datetime
    message_id: str
    """The header webhook-id; the same in all attempts."""
    seconds: float
    status: int
    """HTTP status of the receiver; 0 for none."""
    type: Literal[
        "container.created", "container.started", "container.stopped", "container.paused", "container.resumed",
        "container.changed", "container.expired", "container.deleted", "container.reset", "container.restored",
        "container.forked", "snapshot.created", "snapshot.deleted", "exec.started", "exec.ended",
        "files.changed", "file.stored", "file.deleted", "approval.parked", "approval.decided",
        "tool_call.ended", "port.opened", "port.closed", "gap", "webhook.disabled"
    ]
    error: str | None = None


@dataclass(kw_only=True, slots=True)
class WindowSize:
    """A WindowSize is the size of a terminal in character cells."""

    cols: int
    rows: int


@dataclass(kw_only=True, slots=True)
class Workspace:
    """A Workspace is a directory tree that outlives containers."""

    id: str
    container_id: str
    """The container that uses it; empty for none."""
    created_at: datetime
    kept: bool
    """It stays when its container goes."""
