"""Jupyter kernels in berth containers.

A kernel.json with this stanza has its kernel run in a container of its own; README.md has all of it:

    "metadata": {"kernel_provisioner": {"provisioner_name": "berth-provisioner", "config": {"image": "jupyter"}}}

The kernel's five ports are forwarded, so everything that speaks to kernels works as with a local one: Jupyter's
servers, nbclient, papermill, editors.
"""

import asyncio
import json
import signal
import time
from typing import Any

from berth import BerthError, Command, ConflictError, ExpiredError, Forward, NotFoundError, Sandbox
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Bool, Dict, Int, List, Unicode

__all__ = ["BerthProvisioner"]

# Ports of the kernel in its container.
PORTS = {"shell_port": 9101, "iopub_port": 9102, "stdin_port": 9103, "control_port": 9104, "hb_port": 9105}
CONNECTION_FILE = "/tmp/berth-kernel.json"
LOST = 70  # exit status of a kernel that ended with its container


class BerthProvisioner(KernelProvisionerBase):
    """Starts the kernel of a kernelspec in a container. Its settings stand in the kernelspec, below "config".

    A restart of the kernel keeps the container and its files; a shutdown deletes it.
    """

    image = Unicode("", help="Image with the kernel's program. Default: the daemon's.").tag(config=True)
    container = Unicode("", help="ID or name of a container that stays. Default: a new one.").tag(config=True)
    user = Unicode("user", help="Who the kernel runs as: user, root, or one of the image.").tag(config=True)
    cwd = Unicode("/workspace", help="Where the kernel begins.").tag(config=True)
    network = Unicode("none", help="What the container may reach: none or open.").tag(config=True)
    allow = List(Unicode(), help='Hosts that it may reach with the network "none".').tag(config=True)
    limits = Dict(help="cpus, memory_bytes, disk_bytes, pids and open_files.").tag(config=True)
    runtime_class = Unicode("", help="runc or gvisor. Default: the daemon's.").tag(config=True)
    keep = Bool(False, help="Stop the container at the end instead of deleting it.").tag(config=True)
    start_seconds = Int(60, help="How long the kernel may take until it listens.").tag(config=True)

    # Calls go to threads: managers call from several event loops, and one client serves any number of threads.
    _sandbox: Sandbox | None = None
    _command: Command | None = None
    _forwards: dict[str, Forward]

    @property
    def has_process(self) -> bool:
        """Whether a kernel was started and its end was not yet waited for."""
        return self._command is not None

    # -- Start

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Creates the container, unless this is a restart, and forwards the ports of the kernel."""
        manager = self.parent
        if getattr(manager, "transport_encryption", "disabled") == "required":
            raise RuntimeError(
                'transport_encryption="required" does not work with berth-provisioner: the kernel\'s ports are reached '
                "by the daemon's API; give that HTTPS instead")
        kwargs.pop("transport_encryption", None)
        if self._sandbox is None:
            await asyncio.to_thread(self._open)
        if manager is not None:
            manager.transport, manager.ip = "tcp", "127.0.0.1"
            for name, forward in self._forwards.items():
                setattr(manager, name, forward.port)
            manager.write_connection_file()
            self.connection_info = manager.get_connection_info()
        argv = [*self.kernel_spec.argv, *kwargs.pop("extra_arguments", [])]
        cmd = [arg.replace("{connection_file}", CONNECTION_FILE) for arg in argv]
        return await super().pre_launch(cmd=cmd, **kwargs)

    def _open(self) -> None:
        """Makes the container and its forwards, all of them or none."""
        network = {"mode": "allowlist", "allow": list(self.allow)} if self.allow else self.network
        self._sandbox = Sandbox.get(self.container) if self.container else Sandbox.create(
            image=self.image or None, network=network, limits=dict(self.limits) or None,
            runtime_class=self.runtime_class or None, labels={"jupyter.kernel": str(self.kernel_id)})
        self._forwards = {}
        try:
            self._connect({})
        except BaseException:
            self._close()
            raise

    def _connect(self, local: dict[str, int]) -> None:
        assert self._sandbox is not None
        for name, port in PORTS.items():
            self._forwards[name] = self._sandbox.ports.forward(port, local.get(name, 0))

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts the kernel, and returns when it listens."""
        # Of the environment of this process only what the kernelspec asks for goes into the container.
        given: dict[str, str] = kwargs.get("env") or {}
        env = {name: given[name] for name in (*self.kernel_spec.env, "JPY_SESSION_NAME") if name in given}
        try:
            await asyncio.to_thread(self._start, cmd, env)
        except BaseException:
            await self.cleanup()
            raise
        return self.connection_info

    def _start(self, cmd: list[str], env: dict[str, str]) -> None:
        assert self._sandbox is not None
        info = {name: value.decode() if isinstance(value, bytes) else value
                for name, value in self.connection_info.items()}
        self._sandbox.files.write(CONNECTION_FILE, json.dumps({**info, **PORTS}), mode=0o600, user=self.user)
        self._command = self._sandbox.run(cmd, background=True, cwd=self.cwd, env=env, user=self.user)
        deadline = time.monotonic() + self.start_seconds
        while not {*PORTS.values()} <= {p.port for p in self._sandbox.ports.list()}:
            if self._command.refresh().state == "ended":
                result = self._command.wait()
                self._command = None
                raise RuntimeError(
                    f"the kernel ended with the code {result.return_code} before it listened: "
                    f"{result.stderr.strip() or result.message}; is its program in the image "
                    f"{self._sandbox.info.image!r}? The README of berth-jupyter has a Dockerfile for one")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the kernel did not listen within {self.start_seconds} seconds; see start_seconds")
            time.sleep(0.05)

    # -- What the manager asks of a process

    async def poll(self) -> int | None:
        """Returns None while the kernel runs, and then its exit status."""
        return 0 if self._command is None else await asyncio.to_thread(self._status, self._command)

    def _status(self, command: Command) -> int | None:
        try:
            run = command.refresh()
        except BerthError as e:
            self.log.warning("the kernel's container is gone: %s", e)
            return LOST
        if run.state != "ended":
            return None
        return run.end.return_code if run.end is not None else LOST

    async def wait(self) -> int | None:
        """Waits for the kernel's end."""
        while (status := await self.poll()) is None:
            await asyncio.sleep(0.1)
        self._command = None
        return status

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel's process group."""
        if self._command is not None:
            await asyncio.to_thread(self._signal, self._command, signal.Signals(signum).name)

    def _signal(self, command: Command, name: str) -> None:
        try:
            command.signal(name)
        except (ConflictError, ExpiredError, NotFoundError) as e:
            self.log.debug("the kernel ended before it got %s: %s", name, e)

    async def kill(self, restart: bool = False) -> None:
        """Ends the kernel at once."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Asks the kernel to end."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Deletes the container, unless the kernel is about to start again."""
        if not restart:
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        sandbox, self._sandbox, self._command = self._sandbox, None, None
        if sandbox is None:
            return
        for forward in self._forwards.values():
            forward.close()
        if self.container:
            sandbox.close()
        elif self.keep:
            sandbox.stop()
            self.log.warning("the files of the kernel are in %s; delete it with `berth rm %s`", sandbox.id, sandbox.id)
            sandbox.close()
        else:
            sandbox.delete()

    # -- For managers that give a running kernel to another process

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Returns what another process needs to take the kernel over."""
        info = await super().get_provisioner_info()
        if self._sandbox is not None and self._command is not None:
            info |= {"container": self._sandbox.id, "command": self._command.id}
        return info

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Takes over a kernel that another process started and no longer serves."""
        await super().load_provisioner_info(provisioner_info)
        await asyncio.to_thread(self._load, provisioner_info)

    def _load(self, info: dict[str, Any]) -> None:
        self._sandbox = Sandbox.get(info["container"])
        self._command = self._sandbox.command(info["command"])
        self._forwards = {}
        self._connect({name: int(info["connection_info"][name]) for name in PORTS})
