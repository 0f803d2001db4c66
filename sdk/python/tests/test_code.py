"""Code in sandboxes."""

from __future__ import annotations

import pytest

from berth import AlreadyExistsError, CodeFailedError, Result, Sandbox


def test_values(sandbox: Sandbox) -> None:
    r = sandbox.code.run("print('hi')\n6*7")
    assert (r.text, r.stdout, r.ok, len(r.results)) == ("42", "hi\n", True, 1) and r.results[0].main
    assert sandbox.code.run("x = 1").text is None
    assert sandbox.code.run("'a' + 'b'", language="js").text == "'ab'"
    assert sandbox.code.run("import os\nos.getcwd()").text == "'/workspace'"
    assert sandbox.code.run("import os\nos.environ['A']", env={"A": "b"}).text == "'b'"
    e = sandbox.code.run("print('before')\n1/0")
    assert e.error is not None and (e.error.name, e.stdout, e.ok) == ("ZeroDivisionError", "before\n", False)
    with pytest.raises(CodeFailedError, match="ZeroDivisionError"):
        e.check()


def test_figures_and_tables(sandbox: Sandbox) -> None:
    sandbox.files.write("data.csv", "city,degrees\nOslo,4\nLima,19\n")
    r = sandbox.code.run("""
import pandas, matplotlib.pyplot as plt
frame = pandas.read_csv("data.csv")
plt.bar(frame.city, frame.degrees); plt.title("Warm")
frame""").check()
    assert r.png is not None and r.png.startswith(b"\x89PNG")
    assert r.chart is not None and r.chart["title"] == "Warm"
    assert r.table is not None and r.table["rows"] == [["Oslo", 4], ["Lima", 19]]
    assert "<table" in (r.html or "") and "Oslo" in (r.text or "")
    assert [x.main for x in r.results] == [False, True]
    assert sandbox.code.run("({a: [1]})", language="js").json == {"a": [1]}


def test_contexts(sandbox: Sandbox) -> None:
    with sandbox.code.context("main") as main:
        assert main.run("x = 20\nimport os\nos.getcwd()").text == "'/workspace'"
        assert main.run("x + 1").text == "21"
        assert sandbox.code.run("x + 2", context=main).text == "22"
        assert sandbox.code.run("x + 3", context="main").text == "23"
        assert main.info().cells == 4 and [c.name for c in sandbox.code.list()] == ["main"]
        with pytest.raises(AlreadyExistsError):
            sandbox.code.context("main")
        r = main.run("import time\nwhile True: time.sleep(0.1)", timeout_seconds=0.5)
        assert r.error is not None and r.error.name == "timeout" and main.run("x").text == "20"
        main.restart()
        assert main.run("x").error is not None
    assert sandbox.code.list() == []


def test_streams(sandbox: Sandbox) -> None:
    out: list[str] = []
    shown: list[Result] = []
    r = sandbox.code.run("print('a', flush=True)\ndisplay('shown')\nimport sys\nprint('b', file=sys.stderr)\n1+1",
                         on_stdout=out.append, on_stderr=out.append, on_result=shown.append)
    assert "".join(out) == "a\nb\n" and [x.text for x in shown] == ["'shown'", "2"] and r.text == "2"
    assert sandbox.code.list() == []  # the context that was made for it is gone
