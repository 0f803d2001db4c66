"""Has deep agents work in a container: LangChain's own tests of such backends, and agents with a scripted model."""

import asyncio
import os
import pathlib
import re
import subprocess
import sys
import time
from importlib.metadata import version
from typing import Any

import pytest
from berth import ExpiredError, NotFoundError, Sandbox
from berth_deepagents import BerthSandbox
from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_tests.integration_tests import SandboxIntegrationTests

# Tests that ask for what deepagents 0.6 did. From 0.7 on its own BaseSandbox lets `write` replace a file, and `glob`
# return absolute paths, and files alone. A release of the tests that knows this fails here, and the list can go.
OF_BEFORE = {
    "test_write_existing_file_fails", "test_glob", "test_glob_basic_pattern", "test_glob_with_directories",
    "test_glob_hidden_files_explicitly", "test_glob_with_character_class", "test_glob_with_question_mark",
}


class TestBackend(SandboxIntegrationTests):
    """LangChain's tests, as they are."""

    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create() as sandbox:
            yield BerthSandbox(sandbox)


class Outcomes:
    """A plugin of pytest that keeps what became of each test."""

    def __init__(self):
        self.passed, self.failed = set(), {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rsplit(":", 1)[-1]
        if report.failed:
            self.failed[name] = report.longreprtext
        elif report.when == "call" and report.passed:
            self.passed.add(name)


def standard_tests():
    outcomes = Outcomes()
    pytest.main(["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "ignore",
                 "--import-mode=importlib", __file__], plugins=[outcomes])
    return outcomes


def contract():
    outcomes = standard_tests()
    wrong = {name: why for name, why in outcomes.failed.items() if name not in OF_BEFORE}
    assert not wrong, "\n".join(wrong.values())
    assert OF_BEFORE <= outcomes.failed.keys(), f"these pass now: {OF_BEFORE - outcomes.failed.keys()}"
    assert len(outcomes.passed) >= 79, outcomes.passed


def contract_of_before():
    """All of the tests pass with the last deepagents that they were written for."""
    assert version("deepagents").startswith("0.6."), version("deepagents")
    outcomes = standard_tests()
    assert not outcomes.failed, "\n".join(outcomes.failed.values())
    assert len(outcomes.passed) >= 86, outcomes.passed


def earlier():
    env = os.environ | {"PYTHONPATH": "earlier" + os.pathsep + os.environ["PYTHONPATH"]}
    subprocess.run([sys.executable, __file__, "contract_of_before"], env=env, check=True)


class Scripted(BaseChatModel):
    """A model that calls tools as its script says, and then ends with the last results."""

    script: list[tuple[str, dict[str, Any]]]

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        names = {t["function"]["name"] if isinstance(t, dict) else t.name for t in tools}
        missing = {name for name, _ in self.script} - names
        assert not missing, f"the agent has no tools {missing}, but {names}"
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        step = sum(isinstance(m, ToolMessage) for m in messages)
        if step < len(self.script):
            name, args = self.script[step]
            answer = AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call_{step}"}])
        else:
            answer = AIMessage("finished")
        return ChatResult(generations=[ChatGeneration(message=answer)])


ROWS = "city,degrees\\nOslo,4\\nLima,19\\n"
SCRIPT = [
    ("execute", {"command": f"printf '{ROWS}' >cities.csv; echo to stderr >&2; exit 3"}),
    ("write_file", {"file_path": "/workspace/mean.py", "content":
        "import pandas\nprint(pandas.read_csv('cities.csv').degrees.mean())\n"}),
    ("execute", {"command": "python3 mean.py"}),
    ("edit_file", {"file_path": "/workspace/mean.py", "old_string": "mean()", "new_string": "max()"}),
    ("execute", {"command": "python3 mean.py"}),
    ("read_file", {"file_path": "/workspace/cities.csv"}),
    ("grep", {"pattern": "Lima", "path": "/workspace", "output_mode": "content"}),
    ("execute", {"command": "seq 100000"}),
]


def check_run(state):
    results = [m.text if isinstance(m.text, str) else m.text() for m in state["messages"] if isinstance(m, ToolMessage)]
    assert len(results) == len(SCRIPT) and state["messages"][-1].content == "finished", results
    assert "to stderr" in results[0] and "3" in results[0], results[0]
    assert "11.5" in results[2] and "19" in results[4], results
    assert "Oslo,4" in results[5] and "Lima,19" in results[6], results
    long = re.search(r"/large_tool_results/[\w-]+", results[7])
    assert long and len(results[7]) < 20000, results[7][:500]
    return long[0]


def agent_run():
    with Sandbox.create() as sandbox:
        backend = BerthSandbox(sandbox)
        agent = create_deep_agent(model=Scripted(script=SCRIPT), backend=backend)
        path = check_run(agent.invoke({"messages": [HumanMessage("Find the mean and the maximum.")]}))
        assert sandbox.files.read(path).splitlines()[-1] == b"100000"
        assert sandbox.files.read_text("cities.csv") == ROWS.encode().decode("unicode_escape")


def async_run():
    """Two event loops, one after the other, work with one backend."""
    async def work(backend):
        agent = create_deep_agent(model=Scripted(script=SCRIPT), backend=backend)
        check_run(await agent.ainvoke({"messages": [HumanMessage("Find the mean and the maximum.")]}))
        many = [(f"/workspace/many/{n}", str(n).encode()) for n in range(40)]
        assert all(u.error is None for u in await backend.aupload_files(many))
        found = await backend.adownload_files([path for path, _ in many] + ["/none", "relative", "/workspace/many"])
        assert [f.content for f in found[:40]] == [content for _, content in many]
        assert [f.error for f in found[40:]] == ["file_not_found", "invalid_path", "is_directory"], found[40:]
        await backend.aclose()

    with Sandbox.create() as sandbox:
        backend = BerthSandbox(sandbox)
        asyncio.run(work(backend))
        asyncio.run(work(backend))


def order_and_errors():
    with Sandbox.create() as sandbox:
        backend = BerthSandbox(sandbox, timeout=2)
        lines = backend.execute("for i in 1 2 3; do echo out $i; echo err $i >&2; done").output
        assert lines == "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3)), lines
        wrong = backend.execute("echo 'open")
        assert wrong.exit_code == 2 and "unexpected EOF" in wrong.output, wrong
        slow = backend.execute("echo begun; sleep 60")
        assert slow.exit_code == 124 and "begun" in slow.output and "after 2 seconds" in slow.output, slow
        assert backend.execute("sleep 3; echo slow", timeout=20).output == "slow\n"
        assert backend.execute("kill -9 $$").exit_code == 137
        cut = backend.execute("head -c 20000000 /dev/zero | tr '\\0' x", timeout=60)
        assert cut.truncated and cut.exit_code == 0, len(cut.output)
        uploaded = backend.upload_files([("/etc/nologin", b""), ("/workspace/ok", b"1"), ("/workspace", b"")])
        assert [u.error for u in uploaded] == ["permission_denied", None, "is_directory"], uploaded
        with pytest.raises(ValueError, match="0 to 86400"):
            backend.execute("true", timeout=-1)
        sandbox.stop()
        assert backend.execute("cat ok").output == "1"
        Sandbox.get(sandbox.id).delete()
        with pytest.raises((NotFoundError, ExpiredError)):
            backend.execute("true")
        with pytest.raises((NotFoundError, ExpiredError)):
            backend.upload_files([("/workspace/a", b"")])
    with pytest.raises(RuntimeError, match="make another client"):
        backend.execute("true")
    with pytest.raises(TypeError, match="Sandbox.create"):
        BerthSandbox(sandbox.id)


def cancellation():
    """A canceled call leaves no command behind."""
    async def work(sandbox):
        backend = BerthSandbox(sandbox)
        task = asyncio.create_task(backend.aexecute("sleep 300"))
        while "sleep 300" not in (await asyncio.to_thread(sandbox.run, "ps -ef")).stdout:
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        end = time.monotonic() + 10
        while "sleep 300" in (await asyncio.to_thread(sandbox.run, "ps -ef")).stdout:
            assert time.monotonic() < end, "the command goes on"

    with Sandbox.create() as sandbox:
        asyncio.run(work(sandbox))


def readme():
    """The example of the README, with the scripted model."""
    text = pathlib.Path(os.environ["BERTH_ADAPTER"], "README.md").read_text()
    example, = re.findall(r"```python\n(.*?)```", text, re.S)
    model, count = re.subn(r'model="[^"]+"', "model=MODEL", example)
    assert count == 1
    pathlib.Path("data.csv").write_text("city,degrees\nOslo,4\n")
    exec(compile(model, "README.md", "exec"), {"MODEL": Scripted(script=[
        ("execute", {"command": "tail -1 data.csv >report.md"})])})
    assert pathlib.Path("report.md").read_text() == "Oslo,4\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["contract_of_before"]:
        contract_of_before()
        sys.exit()
    for part in (contract, earlier, agent_run, async_run, order_and_errors, cancellation, readme):
        print(part.__name__, flush=True)
        part()
    print("done")
