"""Harbor's environments in berth containers.

    harbor run --path TASK --agent oracle --environment-import-path berth_harbor:BerthEnvironment

The image of a task's Dockerfile is built by the daemon, or pulled if the task names one. Each trial has a container of
its own.
"""

import os
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, override

from berth import AsyncClient, AsyncSandbox, BerthError, InvalidArgumentError
from berth.types import Info
from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    COMPOSE_FILE_NAME, DOCKERFILE_NAME, require_agent_environment_definition, should_use_prebuilt_docker_image,
)
from harbor.environments.options import EnvironmentOptions
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode
from pydantic import Field

__all__ = ["BerthEnvironment", "BerthOptions"]

LONGEST = 86400  # seconds; the daemon's maximum for a command
MOST_OUTPUT = 16 << 20  # bytes of a stream that the daemon keeps at most
LIFETIME = 7 * 86400  # seconds; then the daemon removes a container that is still there
NETWORK = {NetworkMode.NO_NETWORK: "none", NetworkMode.ALLOWLIST: "allowlist", NetworkMode.PUBLIC: "open"}


class BerthOptions(EnvironmentOptions):
    """Settings of BerthEnvironment, given by --environment-kwarg NAME=VALUE."""

    runtime_class: Literal["runc", "gvisor"] | None = Field(
        default=None, description="How containers are isolated. Default: the daemon's.")
    build_network: Literal["none", "allowlist", "open"] | None = Field(
        default=None, description="What RUN of the Dockerfile may reach. Default: open, if the daemon allows that.")
    idle_timeout_seconds: int = Field(
        default=3600, description="Stop a container that is not used for so long; its files stay.")


class BerthEnvironment(BaseEnvironment):
    """A container of one trial."""

    options_model = BerthOptions
    options: BerthOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._client: AsyncClient | None = None
        self._sandbox: AsyncSandbox | None = None
        super().__init__(*args, **kwargs)

    @property
    def sandbox(self) -> AsyncSandbox:
        """The container; for what Harbor has no method for, such as snapshots."""
        if self._sandbox is None:
            raise RuntimeError(f"the environment {self.session_id} has not been started; call start first")
        return self._sandbox

    @property
    def client(self) -> AsyncClient:
        """The daemon in which the container runs."""
        if self._client is None:
            raise RuntimeError(f"the environment {self.session_id} has not been started; call start first")
        return self._client

    # -- What it is

    @staticmethod
    @override
    def type() -> str:
        return "berth"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True, network_allowlist=True, network_allowlist_hostnames=True,
            dynamic_network_policy=True)

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @override
    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if (self.environment_dir / COMPOSE_FILE_NAME).exists():
            raise ValueError(
                f"berth runs one container a task, and {self.environment_dir / COMPOSE_FILE_NAME} wants several; "
                f"give the task a {DOCKERFILE_NAME}, or run it with another environment")

    # -- Life

    @override
    async def start(self, force_build: bool) -> None:
        client = self._client = AsyncClient()
        info = await client.info()
        self._sandbox = await AsyncSandbox.create(
            client=client, image=await self._image(client, info, force_build), env=self._startup_env() or None,
            limits=self._limits(info), network=network(self.network_policy),
            labels={"harbor.session": self.session_id[:256]}, runtime_class=self.options.runtime_class,
            idle_timeout_seconds=self.options.idle_timeout_seconds, max_lifetime_seconds=LIFETIME)
        self.logger.debug(f"{self.session_id} is {self._sandbox.id}")
        await self._sandbox.files.mkdir(self._workdir, user="root")
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        client, sandbox = self._client, self._sandbox
        self._client = self._sandbox = None
        if sandbox is not None and delete:
            await sandbox.delete()
        elif sandbox is not None:
            await sandbox.stop()
            self.logger.info(f"kept the files of {sandbox.id}; enter it with `berth exec -it {sandbox.id} bash`, and "
                             f"delete it with `berth rm {sandbox.id}`")
        if client is not None:
            await client.aclose()

    async def _image(self, client: AsyncClient, info: Info, force_build: bool) -> str:
        """Returns the name of the task's image, which is pulled or built if the daemon does not have it."""
        known = {image.name for image in await client.images.list()}
        prebuilt = self.task_env_config.docker_image
        if prebuilt and should_use_prebuilt_docker_image(
                self.environment_dir, docker_image=prebuilt, force_build=force_build):
            if prebuilt in known:
                return prebuilt
            return (await client.images.pull(prebuilt)).name
        name = re.sub(r"[^a-z0-9._-]+", "-", f"harbor-{self.environment_name.lower()}-{self.environment_id[:12]}")
        if force_build or name not in known:
            reach = self.options.build_network or ("open" if info.network_max == "open" else None)
            try:
                await client.images.build(self.environment_dir, name, network=reach)
            except InvalidArgumentError as e:
                raise SandboxBuildFailedError(f"building {self.environment_dir / DOCKERFILE_NAME}: {e}") from e
        return name

    def _limits(self, info: Info) -> dict[str, Any]:
        """Returns what the task wants, in the daemon's form. Harbor promises no disk space, so a task that wants more
        than the daemon gives gets what there is."""
        limits: dict[str, Any] = {}
        if (cpus := self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)) is not None:
            limits["cpus"] = cpus
        if (memory := self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)) is not None:
            limits["memory_bytes"] = memory << 20
        if (disk := self._effective_storage_mb) is not None:
            most = info.default_limits.disk_bytes
            if most and disk << 20 > most:
                self.logger.warning(f"the task asks for {disk} MiB of disk and gets {most >> 20}, the most of this "
                                    "daemon; `berth serve --disk-bytes` changes that")
            else:
                limits["disk_bytes"] = disk << 20
        return limits

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.update(network=network(network_policy))

    @property
    def _workdir(self) -> str:
        return self.task_env_config.workdir or dockerfile_workdir(self.environment_dir / DOCKERFILE_NAME)

    # -- Commands and files

    @override
    async def exec(self, command: str, cwd: str | None = None, env: dict[str, str] | None = None,
                   timeout_sec: int | None = None, user: str | int | None = None) -> ExecResult:
        user = self._resolve_user(user)
        emit = self._output_callback()
        result = await self.sandbox.run(
            command, cwd=cwd or self._workdir, env=self._merge_env(env), user="root" if user is None else str(user),
            timeout_seconds=min(timeout_sec or LONGEST, LONGEST), max_output_bytes=MOST_OUTPUT,
            on_stdout=told(emit, "stdout"), on_stderr=told(emit, "stderr"))
        if result.reason == "timeout":
            raise RuntimeError(f"Command timed out after {timeout_sec or LONGEST} seconds")
        stderr = result.stderr
        if result.reason not in ("exit", "signal", "not_started"):
            stderr += f"{result.message or result.reason}\n"  # such as out_of_memory, which nothing else tells
        return ExecResult(stdout=result.stdout, stderr=stderr, return_code=result.return_code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.sandbox.files.put(source_path, target_path, user="root")

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.sandbox.files.put(source_dir, target_dir, user="root")

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self.sandbox.files.get(source_path, target_path, user="root")

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self.sandbox.files.get(source_dir, target_dir, user="root")

    @override
    async def attach(self) -> None:
        """Says how a person enters the container."""
        command = ["berth", "--host", self.client.url, "exec", "-it", "-u", "root", self.sandbox.id, "bash"]
        self.logger.info(shlex.join(command))
        os.execvp(command[0], command)

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Checks that the daemon answers, before trials are queued."""
        from berth import Client

        super().preflight(kwargs)
        try:
            with Client(wait=0) as client:
                client.info()
        except BerthError as e:
            raise SystemExit(f"berth: {e}") from e


def told(emit: Callable[[str, Any], Awaitable[None]] | None, stream: str) -> Callable[[str], Awaitable[None]] | None:
    """Returns a callback for pieces of one stream, if Harbor wants to see them."""
    if emit is None:
        return None

    async def piece(text: str) -> None:
        await emit(text, stream)

    return piece


def network(policy: NetworkPolicy) -> dict[str, Any]:
    """Returns a policy of Harbor in the daemon's form."""
    return {"mode": NETWORK[policy.network_mode], "allow": [*policy.allowed_hosts]}


def dockerfile_workdir(path: Path) -> str:
    """Returns where commands of a Dockerfile's image begin: the last WORKDIR of its last stage, or /."""
    workdir = "/"
    if path.exists():
        for line in path.read_text().splitlines():
            word, _, rest = line.strip().partition(" ")
            if word.upper() == "FROM":
                workdir = "/"
            elif word.upper() == "WORKDIR":
                workdir = str(Path(workdir) / rest.strip().strip("\"'"))
    return workdir
