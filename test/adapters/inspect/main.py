"""Has Inspect AI's sandboxes be containers: Inspect's own tests of sandboxes, and evaluations with a scripted model."""

import asyncio
import os
import pathlib
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator

import pytest
from berth import AsyncSandbox, Client, CommandFailedError, Sandbox
from berth_inspect import BerthSandboxConfig, BerthSandboxEnvironment
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, python, text_editor
from inspect_ai.util import (
    OutputLimitExceededError, SandboxEnvironment, SandboxEnvironmentSpec, SandboxUnavailableError, sandbox,
)
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

Environment = BerthSandboxEnvironment


@pytest.fixture
async def sandbox_env() -> AsyncIterator[SandboxEnvironment]:
    """The sandbox that Inspect's tests ask for."""
    made = await Environment.sample_init("check", None, {})
    yield made["default"]
    await Environment.sample_cleanup("check", None, made, False)


async def test_output_limit(sandbox_env: SandboxEnvironment) -> None:
    with override_max_exec_output_size(1000):
        with pytest.raises(OutputLimitExceededError, match="limit of 1000 bytes") as e:
            await sandbox_env.exec(["sh", "-c", "yes marker; :"])
    assert len(e.value.truncated_output or "") == 1000
    whole = await sandbox_env.exec(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; printf y"])
    assert len(whole.stdout) == 3_000_001 and whole.stdout.endswith("xy")  # more than the daemon keeps by itself


@pytest.mark.parametrize("input", [None, b"\0" * 100], ids=["without", "bytes"])
async def test_cancelled_command_is_killed(sandbox_env: SandboxEnvironment, input: bytes | None) -> None:
    task = asyncio.create_task(sandbox_env.exec(["sh", "-c", "echo >begun; sleep 1000; :"], input=input))
    while not (await sandbox_env.exec(["test", "-e", "begun"])).success:
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        while (await sandbox_env.exec(["pgrep", "-x", "sleep"])).success:
            await asyncio.sleep(0.05)


async def test_partial_output_of_a_timeout(sandbox_env: SandboxEnvironment) -> None:
    with pytest.raises(TimeoutError) as e:
        await sandbox_env.exec(["sh", "-c", "echo before; sleep 100"], timeout=1)
    assert getattr(e.value, "truncated_output") == "before\n"


async def test_gone() -> None:
    made = await Environment.sample_init("check", None, {})
    env = made["default"].as_type(Environment)
    assert shlex.split((await env.connection()).command)[-2:] == [env.sandbox.id, "bash"]
    keep = await AsyncSandbox.get(env.sandbox.id)
    await keep.delete()
    with pytest.raises(SandboxUnavailableError, match=env.sandbox.id):
        await env.exec(["true"])
    with pytest.raises(SandboxUnavailableError, match=env.sandbox.id):
        await env.read_file("x")
    with pytest.raises(ConnectionError, match=env.sandbox.id):
        await env.connection()
    await Environment.sample_cleanup("check", None, made, False)


async def test_settings() -> None:
    config = BerthSandboxConfig(user="root", working_dir="/srv/w", env={"A": "b"}, memory_bytes=256 << 20)
    made = await Environment.sample_init("check", config, {})
    env = made["default"].as_type(Environment)
    assert (await env.exec(["sh", "-c", "id -un; pwd; echo $A"])).stdout == "root\n/srv/w\nb\n"
    assert env.sandbox.info.limits.memory_bytes == 256 << 20
    await env.write_file("/etc/made", "x")
    await Environment.sample_cleanup("check", config, made, False)
    left_before = left()
    with pytest.raises(CommandFailedError, match="nobody-there"):
        await Environment.sample_init("check", BerthSandboxConfig(user="nobody-there", working_dir="/x"), {})
    assert left() == left_before
    for wrong, why in (("none-such", "berth image pull none-such"), ("compose.yaml", "Dockerfile of one")):
        with pytest.raises(ValueError, match=why):
            await Environment.task_init("check", wrong)


def contract() -> None:
    """Runs the tests above, and Inspect's."""
    code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto",
                        "-o", "asyncio_default_fixture_loop_scope=function",
                        "--import-mode=importlib", __file__])
    assert code == 0, code


def call(tool: str, **arguments: object) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, dict(arguments))


def evaluate(task: Task, *outputs: ModelOutput, **settings: object) -> EvalLog:
    """Evaluates a task with a model that plays the outputs."""
    played = [*outputs, ModelOutput.from_content("mockllm/model", "42")]
    for output in played:
        output.usage = ModelUsage()  # without one, Inspect fetches a tokenizer to count
    model = get_model("mockllm/model", custom_outputs=played)
    (log,) = eval(task, model=model, display="none", log_dir=tempfile.mkdtemp(), **settings)  # type: ignore[arg-type]
    assert log.status == "success", log.error and log.error.traceback
    return log


def answers(log: EvalLog) -> list[str]:
    """Returns what the tools answered."""
    (sample,) = log.samples or []
    return [f"{m.error.type}: {m.error.message}" if m.error else m.text
            for m in sample.messages if isinstance(m, ChatMessageTool)]


def left() -> list[str]:
    return [s.id for s in Sandbox.list() if "inspect.task" in (s.info.labels or {})]


def evaluations() -> None:
    tools = use_tools(bash(timeout=2), python())
    sample = Sample("What is six times seven?", target="42", files={"in/data.txt": "6 7\n"}, setup="cp in/data.txt x")
    log = evaluate(
        Task([sample], solver=[tools, generate()], scorer=includes(), sandbox="berth"),
        call("bash", command="cat x; hostname >mark; id -un"), call("python", code="print(6*7)"),
        call("bash", command="sleep 100"), call("bash", cmd="cat mark >/dev/null && exit 3"))
    assert log.results and log.results.scores[0].metrics["accuracy"].value == 1
    said = answers(log)
    assert said[:2] == ["6 7\nuser\n", "42\n"] and said[2].startswith("timeout") and len(said) == 4, said
    assert left() == []

    log = evaluate(
        Task([Sample("x")], solver=[use_tools(bash_session(), text_editor()), generate()], sandbox="berth"),
        call("bash_session", action="type_submit", input="cd /tmp && pwd"),
        call("text_editor", command="create", path="/workspace/a.txt", file_text="made\n"),
        call("text_editor", command="view", path="/workspace/a.txt"))
    said = answers(log)
    assert "/tmp" in said[0] and "made" in said[2], said

    with tempfile.TemporaryDirectory() as context:
        dockerfile = pathlib.Path(context, "Dockerfile")
        dockerfile.write_text("FROM base\nUSER root\nRUN echo built >/etc/built\n")
        log = evaluate(Task([Sample("x")], solver=[tools, generate()], sandbox=("berth", str(dockerfile))),
                       call("bash", command="cat /etc/built"))
        assert answers(log) == ["built\n"], answers(log)

    spec = SandboxEnvironmentSpec("berth", BerthSandboxConfig(image="base", network="none"))
    evaluate(Task([Sample("x")], solver=[tools, generate()], sandbox=spec), sandbox_cleanup=False)
    (kept,) = left()
    command = [sys.executable, "-m", "inspect_ai", "sandbox", "cleanup", "berth", kept]
    assert os.spawnv(os.P_WAIT, sys.executable, command) == 0
    assert left() == []


if __name__ == "__main__":
    contract()
    evaluations()
    with Client() as client:
        client.images.remove(next(i.name for i in client.images.list() if i.name.startswith("inspect-")))
    print("done")
