"""The daemon is killed while something is under way: nothing runs twice, and nothing is lost."""

from __future__ import annotations

import threading
import time

import pytest

from berth import Client, ConnectionFailedError, Sandbox
from conftest import Daemon


def during(daemon: Daemon, when: threading.Event) -> threading.Thread:
    """Restarts the daemon when the event is set."""
    def work() -> None:
        assert when.wait(60)
        daemon.restart()

    t = threading.Thread(target=work)
    t.start()
    return t


def test_stream(sandbox: Sandbox, daemon: Daemon) -> None:
    go, out = threading.Event(), list[str]()

    def got(text: str) -> None:
        out.append(text)
        if "line 20\n" in text:
            go.set()

    restart = during(daemon, go)
    r = sandbox.run("echo x >>/tmp/ran; for i in $(seq 200); do echo line $i; sleep 0.02; done", on_stdout=got)
    restart.join()
    want = "".join(f"line {i}\n" for i in range(1, 201))
    assert "".join(out) == want and r.stdout == want and r.ok
    assert sandbox.run("wc -l </tmp/ran").stdout == "1\n"


def test_post_without_an_answer(sandbox: Sandbox, daemon: Daemon) -> None:
    """The daemon dies after it has started the command and before it has answered at all."""
    go = threading.Event()
    restart = during(daemon, go)
    threading.Timer(0.5, go.set).start()
    r = sandbox.run("echo x >>/tmp/post; sleep 3; echo done")
    restart.join()
    assert r.stdout == "done\n" and r.ok and sandbox.run("wc -l </tmp/post").stdout == "1\n"


def test_post_while_the_daemon_is_away(client: Client, sandbox: Sandbox, daemon: Daemon) -> None:
    daemon.kill()
    starter = threading.Timer(1, daemon.start)
    starter.start()
    assert sandbox.run("echo x >>/tmp/away; echo ok").stdout == "ok\n"
    starter.join()
    assert sandbox.run("wc -l </tmp/away").stdout == "1\n"
    before = {s.id for s in client.sandboxes.list()}
    daemon.kill()
    starter = threading.Timer(1, daemon.start)
    starter.start()
    with Sandbox.create(client=client) as s:
        starter.join()
        assert {x.id for x in client.sandboxes.list()} - before == {s.id}


def test_background(sandbox: Sandbox, daemon: Daemon) -> None:
    c = sandbox.run("for i in $(seq 100); do echo $i; sleep 0.03; done; exit 7", background=True)
    stream = iter(c)
    first = next(stream).data
    daemon.restart()
    data = first + b"".join(x.data for x in stream)
    assert data == "".join(f"{i}\n" for i in range(1, 101)).encode()
    assert c.wait().return_code == 7


def test_wait(sandbox: Sandbox, daemon: Daemon) -> None:
    c = sandbox.run("sleep 2; exit 9", background=True)
    go = threading.Event()
    restart = during(daemon, go)
    go.set()
    assert c.wait(timeout=60).return_code == 9
    restart.join()


def test_pty(sandbox: Sandbox, daemon: Daemon) -> None:
    with sandbox.pty("bash --norc", env={"PS1": "$ "}) as pty:
        pty.read_until("$ ")
        daemon.restart()
        pty.send("echo still $((6*7))\n")
        assert b"still 42" in pty.read_until("still 42")


def test_files_and_watch(sandbox: Sandbox, daemon: Daemon) -> None:
    sandbox.files.mkdir("w")
    with sandbox.files.watch("w") as watch:
        daemon.restart()
        types: list[str] = []
        for event in watch:
            types.append(event.type)
            if event.type == "overflow":
                sandbox.files.write("w/a", "1")
            if event.type == "write":
                break
    assert types[0] == "overflow"
    assert sandbox.files.read("w/a") == b"1"


def test_events(client: Client, sandbox: Sandbox, daemon: Daemon) -> None:
    last = client.events.list(limit=1)[-1]
    ids: list[str] = []
    events = client.events.follow(container=sandbox.id, types=["exec.ended"], after=last.id)
    ids.append(sandbox.run("true").exec.id)
    assert next(events).exec_id == ids[0]
    daemon.restart()
    ids.append(sandbox.run("true").exec.id)
    assert next(events).exec_id == ids[1]
    events.close()


def test_code_is_not_repeated(sandbox: Sandbox, daemon: Daemon) -> None:
    go = threading.Event()
    restart = during(daemon, go)
    threading.Timer(0.5, go.set).start()
    with pytest.raises(ConnectionFailedError) as e:
        sandbox.code.run("open('/tmp/code', 'a').write('x')\nimport time\ntime.sleep(30)")
    restart.join()
    assert e.value.sent and "may have done" in e.value.hint
    assert sandbox.run("cat /tmp/code").stdout == "x"


def test_no_wait(daemon: Daemon, sandbox: Sandbox) -> None:
    with Client(wait=0) as impatient:
        box = Sandbox.get(sandbox.id, client=impatient)
        daemon.kill()
        began = time.monotonic()
        try:
            with pytest.raises(ConnectionFailedError) as e:
                box.run("true")
            assert not e.value.sent and e.value.code == "unavailable" and "berth serve" in str(e.value)
            assert time.monotonic() - began < 5
        finally:
            daemon.start()
        assert box.run("echo x").stdout == "x\n"
