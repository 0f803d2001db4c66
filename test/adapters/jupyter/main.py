"""Has Jupyter's kernels run in containers: jupyter_client's managers, and a notebook run by nbclient."""

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import nbformat
from berth import Client, Sandbox
from berth_jupyter import BerthProvisioner
from jupyter_client import AsyncKernelManager, BlockingKernelClient, KernelManager
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient

IMAGE = "adapters-jupyter"
LABEL = "jupyter.kernel"
DOCKERFILE = """FROM base
COPY wheels /wheels
USER root
RUN python3 -m pip install --no-index --find-links /wheels --break-system-packages ipykernel && rm -rf /wheels
"""


def build(client: Client) -> None:
    """Builds an image with ipykernel. Its packages were downloaded by an earlier run, or are now."""
    wheels = pathlib.Path(f"wheels-{version('ipykernel')}")
    with tempfile.TemporaryDirectory() as context:
        if not wheels.exists():
            subprocess.run([
                sys.executable, "-m", "pip", "download", "--quiet", "--dest", f"{context}/wheels", "--python-version",
                "3.11", "--only-binary", ":all:", f"ipykernel=={version('ipykernel')}"], check=True)
            shutil.move(f"{context}/wheels", wheels)
        shutil.copytree(wheels, f"{context}/wheels")
        pathlib.Path(context, "Dockerfile").write_text(DOCKERFILE)
        client.images.build(context, IMAGE, network="none")


def kernelspec(name: str, **config: Any) -> None:
    """Installs a kernelspec whose kernel runs in a container."""
    folder = pathlib.Path(os.environ["JUPYTER_PATH"], "kernels", name)
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({
        "argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name, "language": "python", "env": {"FROM_HERE": "${BERTH_TEST_VALUE}"},
        "metadata": {"kernel_provisioner": {"provisioner_name": "berth-provisioner", "config": config}}}))


def value(client: BlockingKernelClient, code: str) -> str:
    """Executes code, and returns what it prints, the repr of its value, or its error."""
    out: list[str] = []

    def take(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            out.append(content["text"])
        elif message["msg_type"] == "execute_result":
            out.append(content["data"]["text/plain"])
        elif message["msg_type"] == "error":
            out.append(content["ename"])

    client.execute_interactive(code, output_hook=take, timeout=60, allow_stdin=False)
    return "".join(out)


def left() -> list[Sandbox]:
    return [s for s in Sandbox.list() if LABEL in (s.info.labels or {})]


def life() -> None:
    """A kernel starts, executes, is interrupted, restarts and ends."""
    manager = KernelManager(kernel_name="berth")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    (sandbox,) = left()
    assert value(client, "import os, getpass; x = 6 * 7; (x, getpass.getuser(), os.getcwd())") == (
        "(42, 'user', '/workspace')")
    assert value(client, "os.environ['FROM_HERE'], 'BERTH_API_KEY' in os.environ") == "('from here', False)"
    assert value(client, "print('x' * 1000000)") == "x" * 1_000_000 + "\n"
    value(client, "open('kept', 'w').write('text')")

    asked = client.execute("print('begun', flush=True)\nwhile True: pass")
    while client.get_iopub_msg(timeout=60)["content"].get("text") != "begun\n":
        pass
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=60)
    assert reply["parent_header"]["msg_id"] == asked and reply["content"]["ename"] == "KeyboardInterrupt", reply
    assert value(client, "x") == "42"

    manager.restart_kernel()
    client.wait_for_ready(timeout=60)
    assert value(client, "'x' in globals()") == "False"
    assert value(client, "open('kept').read()") == "'text'"
    assert [s.id for s in left()] == [sandbox.id]
    manager.restart_kernel(now=True)
    client.wait_for_ready(timeout=60)
    assert client.is_alive() and manager.is_alive()

    client.stop_channels()
    manager.shutdown_kernel()
    assert not manager.is_alive() and left() == []


def death() -> None:
    """The manager sees that a kernel, or its container, has gone."""
    for end in ("import os; os._exit(7)", None):
        manager = KernelManager(kernel_name="berth")
        manager.start_kernel()
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        if end:
            client.execute(end)
        else:
            left()[0].delete()
        while manager.is_alive():
            pass
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        assert left() == []


async def several() -> None:
    """Kernels of one process run side by side, each in its container. One of them is taken over."""
    managers = [AsyncKernelManager(kernel_name="berth") for _ in range(2)]
    await asyncio.gather(*[m.start_kernel() for m in managers])
    assert len(left()) == 2
    info = await managers[0].provisioner.get_provisioner_info()
    other = BerthProvisioner(kernel_id="", kernel_spec=managers[0].kernel_spec, parent=None)
    for forward in managers[0].provisioner._forwards.values():  # as when the first process has ended
        forward.close()
    await other.load_provisioner_info(info)
    assert await other.poll() is None
    await other.kill()
    assert await other.wait() == 137
    await asyncio.gather(*[m.shutdown_kernel(now=True) for m in managers])
    await other.cleanup()
    assert left() == []


def notebook() -> None:
    cells = ["import sys; n = 6", "print(n * 7)", "1 / 0"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(book, kernel_name="berth", timeout=60, allow_errors=True).execute()
    assert book.cells[1].outputs[0].text == "42\n" and book.cells[2].outputs[0].ename == "ZeroDivisionError"
    assert left() == []


def refusals() -> None:
    """What cannot work says why, and leaves nothing."""
    kernelspec("without", image="base")
    kernelspec("nowhere", image="none-such")
    for name, why in (("without", "README of berth-jupyter"), ("nowhere", "none-such")):
        try:
            KernelManager(kernel_name=name).start_kernel()
        except NoSuchKernel:
            raise
        except Exception as e:
            assert why in str(e), e
        else:
            raise AssertionError(f"the kernel {name} started")
        assert left() == []


def given_container() -> None:
    """A kernel in a container that exists leaves it as it is."""
    with Sandbox.create(image=IMAGE, name="jupyter-given") as sandbox:
        sandbox.files.write("data", "text")
        kernelspec("given", container="jupyter-given")
        manager = KernelManager(kernel_name="given")
        manager.start_kernel()
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        assert value(client, "open('data').read()") == "'text'"
        client.stop_channels()
        manager.shutdown_kernel()
        assert sandbox.refresh().state == "running"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Client() as client:
        os.environ |= {"JUPYTER_PATH": folder, "JUPYTER_RUNTIME_DIR": folder, "BERTH_TEST_VALUE": "from here"}
        build(client)
        kernelspec("berth", image=IMAGE)
        life()
        death()
        asyncio.run(several())
        notebook()
        refusals()
        given_container()
        client.images.remove(IMAGE)
    print("done")
