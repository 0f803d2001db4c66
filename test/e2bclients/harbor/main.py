"""Works in a sandbox through Harbor's E2B environment, and has Harbor run a task in one."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from e2b import Sandbox, SandboxQuery
from harbor.environments.e2b import E2BEnvironment
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths


def tree(parent):
    """Returns what is below a directory: modes of files, contents, targets of links."""
    found = {}
    for path in sorted(parent.rglob("*")):
        name = str(path.relative_to(parent))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = "directory"
        else:
            found[name] = (oct(path.stat().st_mode & 0o777), path.read_bytes())
    return found


async def transfers(env, here):
    source = here / "source"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "deep" / "blob").write_bytes(bytes(range(256)) * 4096)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("deep/blob")

    await env.upload_file(source / "run.sh", "/opt/tool/run.sh")
    ran = await env.exec("/opt/tool/run.sh && stat -c %a /opt/tool/run.sh")
    assert ran.stdout == "ran\n755\n", ran
    await env.download_file("/opt/tool/run.sh", here / "back.sh")
    assert (here / "back.sh").read_bytes() == (source / "run.sh").read_bytes()

    await env.upload_dir(source, "/solution")
    assert await env.is_dir("/solution/deep/empty") and await env.is_file("/solution/deep/blob")
    assert not await env.is_file("/solution/missing")
    await env.download_dir("/solution", here / "target")
    assert tree(here / "target") == tree(source), (tree(here / "target").keys(), tree(source).keys())


async def commands(env):
    ran = await env.exec("id -un; pwd; echo \"$CITY\"; echo err >&2; exit 3", cwd="/opt", env={"CITY": "Bern"})
    assert (ran.return_code, ran.stdout, ran.stderr) == (3, "root\n/opt\nBern\n", "err\n"), ran
    assert (await env.exec("id -un", user="user")).stdout == "user\n"
    path = await env.exec("echo $PATH", env={"PATH": "/opt/own:/usr/bin:/bin"})
    assert path.stdout == "/opt/own:/usr/bin:/bin\n", path


def sandboxes():
    """Returns the IDs of the sandboxes of this environment."""
    query = SandboxQuery(metadata={"environment_name": "task"})
    return {box.sandbox_id for box in Sandbox.list(query=query).next_items()}


DOCKERFILE = """FROM base
ENV MADE=yes
WORKDIR /made
COPY given.txt .
RUN cp given.txt both && echo made >>both
"""


async def environment(here):
    (here / "environment").mkdir()
    (here / "environment" / "given.txt").write_text("given\n")
    (here / "environment" / "Dockerfile").write_text(DOCKERFILE)
    paths = TrialPaths(trial_dir=here / "trial")
    paths.mkdir()
    env = E2BEnvironment(environment_dir=here / "environment", environment_name="task", session_id="one",
                         trial_paths=paths, task_env_config=EnvironmentConfig())
    await env.start(force_build=False)
    assert len(sandboxes()) == 1
    made = await env.exec("cat both; echo $MADE; pwd")
    assert made.stdout == "given\nmade\nyes\n/made\n", made
    await commands(env)
    await transfers(env, here)
    await env.stop(delete=True)
    assert not sandboxes()


TASK = {
    "task.toml": 'version = "1.0"\n[verifier]\ntimeout_sec = 60.0\n[agent]\ntimeout_sec = 60.0\n[environment]\n',
    "instruction.md": "Write the sum of the numbers from 1 to 10 to /app/sum.txt.\n",
    "environment/Dockerfile": "FROM base\n",
    "solution/solve.sh": "#!/bin/bash\nmkdir -p /app && python3 -c 'print(sum(range(11)))' >/app/sum.txt\n",
    "tests/test.sh": "#!/bin/bash\n[ \"$(cat /app/sum.txt)\" = 55 ] && echo 1 >/logs/verifier/reward.txt || "
                     "echo 0 >/logs/verifier/reward.txt\n",
}


def task(here):
    """Has the command `harbor` run a task with the agent that does its solution."""
    for name, text in TASK.items():
        file = here / "sum" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    run = subprocess.run([sys.executable, "-c", "from harbor.cli.main import app; app()", "run", "--path", here / "sum",
                          "--env", "e2b", "--agent", "oracle", "--jobs-dir", here / "jobs", "--yes"],
                         stdout=sys.stderr, stdin=subprocess.DEVNULL, cwd=here)
    assert run.returncode == 0, run
    results = [json.loads(file.read_text()) for file in (here / "jobs").glob("*/*/result.json")]
    assert len(results) == 1 and results[0]["exception_info"] is None, results
    assert results[0]["verifier_result"]["rewards"] == {"reward": 1.0}, results


with tempfile.TemporaryDirectory() as work:
    asyncio.run(environment(Path(work)))
    task(Path(work))
print("done")
