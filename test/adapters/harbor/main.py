"""Has Harbor's environments be containers: trials with Harbor's oracle agent, and each call of the interface."""

import asyncio
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import uuid
from typing import Any

from berth import Client, NotFoundError, Sandbox
from berth_harbor import BerthEnvironment, dockerfile_workdir
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

LABEL = "harbor.session"
FILES = {
    "instruction.md": "Write 42 into /app/answer.txt.\n",
    "task.toml": """schema_version = "1.4"
[environment]
network_mode = "no-network"
cpus = 0.5
memory_mb = 512
storage_mb = 10240000
[environment.env]
GREETING = "hello"
[solution.env]
ANSWER = "42"
""",
    "environment/Dockerfile": "FROM base\nUSER root\nWORKDIR /app\nCOPY given.txt .\nRUN echo built >built.txt\n",
    "environment/given.txt": "given\n",
    "solution/solve.sh": '#!/bin/bash\ncat given.txt built.txt; echo "$GREETING $(id -un)"; echo $ANSWER >answer.txt\n'
    "echo kept >/logs/artifacts/made.txt\n",
    "tests/test.sh": """#!/bin/bash
cd /app
grep -qx 42 answer.txt && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
""",
}


def write(folder: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def left() -> list[Sandbox]:
    return [s for s in Sandbox.list() if LABEL in (s.info.labels or {})]


def run(task: pathlib.Path, *more: str) -> tuple[dict[str, Any], pathlib.Path]:
    """Runs a job of one trial, as a person would, and returns the trial's result and its directory."""
    jobs = pathlib.Path(tempfile.mkdtemp())
    harbor = pathlib.Path(sys.executable).with_name("harbor")
    subprocess.run([
        harbor, "run", "--path", task, "--agent", "oracle", "--env", "berth_harbor:BerthEnvironment", "--jobs-dir",
        jobs, "--quiet", *more], check=True, stdout=sys.stderr, env={**os.environ, "HARBOR_TELEMETRY": "off"})
    (result,) = jobs.glob("*/*/result.json")
    trial = json.loads(result.read_text())
    assert trial["exception_info"] is None, trial["exception_info"]
    return trial, result.parent


def trials(folder: pathlib.Path) -> None:
    right = write(folder / "right", FILES)
    trial, logs = run(right)
    assert trial["verifier_result"]["rewards"] == {"reward": 1.0}, trial["verifier_result"]
    assert (logs / "agent/oracle.txt").read_text() == "given\nbuilt\nhello root\n"
    (made,) = (logs / "artifacts").rglob("made.txt")
    assert made.read_text() == "kept\n"
    assert left() == []

    wrong = write(folder / "wrong", {**FILES, "solution/solve.sh": "#!/bin/bash\necho 41 >answer.txt\n"})
    trial, _ = run(wrong)
    assert trial["verifier_result"]["rewards"] == {"reward": 0.0}, trial["verifier_result"]

    ready = {name: text for name, text in FILES.items() if name != "environment/Dockerfile"}
    ready["task.toml"] = FILES["task.toml"].replace("cpus", 'docker_image = "base"\nworkdir = "/app"\ncpus')
    ready["solution/solve.sh"] = "#!/bin/bash\ncat given.txt && echo 42 >answer.txt\n"
    trial, logs = run(write(folder / "ready", ready), "--no-delete")
    assert trial["verifier_result"]["rewards"] == {"reward": 1.0}, trial["verifier_result"]
    (kept,) = left()
    assert kept.files.read_text("/app/answer.txt", user="root") == "42\n"
    kept.delete()


def environment(folder: pathlib.Path, **config: Any) -> BerthEnvironment:
    paths = TrialPaths(trial_dir=folder / str(uuid.uuid4()))
    paths.mkdir()
    made = EnvironmentFactory.create_environment_from_import_path(
        "berth_harbor:BerthEnvironment", environment_dir=folder / "right/environment", environment_name="Right",
        session_id="right__env", trial_paths=paths, task_env_config=EnvironmentConfig(**config),
        logger=logging.getLogger("test"), network_policy=NetworkPolicy(
            network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["pypi.org"]))
    assert isinstance(made, BerthEnvironment)
    return made


async def calls(folder: pathlib.Path) -> None:
    env = environment(folder)
    await env.start(force_build=False)
    try:
        await commands(env)
        await files(env, folder)
        network = env.sandbox.info.network
        assert network and (network.mode, network.allow) == ("allowlist", ["pypi.org"])
        await env.set_network_policy(NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
        network = (await env.sandbox.refresh()).network
        assert network is None or network.mode == "none", network
    finally:
        id = env.sandbox.id
        await env.stop(delete=True)
    await env.stop(delete=True)  # a second one is no error
    with Client() as client:
        try:
            raise AssertionError(Sandbox.get(id, client=client).info.state)
        except NotFoundError:
            pass

    env = environment(folder, docker_image="none.invalid/x:1")
    try:
        await env.start(force_build=False)
    except Exception as e:
        assert "none.invalid" in str(e), e
    else:
        raise AssertionError("an image that does not exist")
    finally:
        await env.stop(delete=True)
    write(folder / "right", {"environment/docker-compose.yaml": "services: {}\n"})
    try:
        environment(folder)
    except ValueError as e:
        assert "wants several" in str(e), e
    else:
        raise AssertionError("a task of several containers")


async def commands(env: BerthEnvironment) -> None:
    result = await env.exec("pwd; id -un; echo $A; echo err >&2; exit 3", env={"A": "b c"})
    assert (result.stdout, result.stderr, result.return_code) == ("/app\nroot\nb c\n", "err\n", 3), result
    with env.with_default_user("user"):
        assert (await env.exec("id -un; pwd", cwd="/tmp")).stdout == "user\n/tmp\n"
    assert (await env.exec("id -u", user=1000)).stdout == "1000\n"
    try:
        await env.exec("sleep 100", timeout_sec=1)
    except RuntimeError as e:
        assert "timed out after 1 seconds" in str(e), e
    else:
        raise AssertionError("no time limit")
    pieces: list[tuple[str, str]] = []

    async def piece(text: str, stream: str) -> None:
        pieces.append((stream, text))

    with env.scoped_output_callback(piece):
        await env.exec("echo one; echo two >&2")
    assert sorted(pieces) == [("stderr", "two\n"), ("stdout", "one\n")], pieces


async def files(env: BerthEnvironment, folder: pathlib.Path) -> None:
    source = write(folder / "up", {"a.txt": "a", "below/b.sh": "b"})
    (source / "below/b.sh").chmod(0o755)
    await env.upload_dir(source, "/data/up")
    await env.upload_file(source / "a.txt", "/data/one.txt")
    assert (await env.exec("cd /data && cat up/a.txt up/below/b.sh one.txt && test -x up/below/b.sh")).stdout == "aba"
    assert await env.is_dir("/data/up") and await env.is_file("/data/one.txt") and not await env.is_dir("/none")
    await env.download_file("/data/one.txt", folder / "one.txt")
    await env.download_dir("/data/up", folder / "down")
    await env.download_dir_with_exclusions(source_dir="/data/up", target_dir=folder / "some", exclude=["below"])
    assert (folder / "one.txt").read_text() == "a" and (folder / "down/below/b.sh").read_text() == "b"
    assert (folder / "some/a.txt").exists() and not (folder / "some/below").exists()


def workdirs(folder: pathlib.Path) -> None:
    text = "FROM a AS b\nWORKDIR /x\nFROM c\nWORKDIR /app\n workdir sub\nRUN true\n"
    write(folder, {"Dockerfile": text})
    assert dockerfile_workdir(folder / "Dockerfile") == "/app/sub"
    assert dockerfile_workdir(folder / "none") == "/"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        workdirs(folder)
        trials(folder)
        asyncio.run(calls(folder))
    with Client() as client:
        for image in client.images.list():
            if image.name.startswith("harbor-"):
                client.images.remove(image.name)
    print("done")
