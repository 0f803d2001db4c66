"""Commands, terminals, lives and copies of sandboxes."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from berth import (
    Client, CommandFailedError, ConflictError, ExpiredError, Forward, NotFoundError, Sandbox, StoredFile,
    UnsupportedError,
)
from berth._http import httpx


def test_result(sandbox: Sandbox) -> None:
    r = sandbox.run("echo out; echo err >&2; exit 3", env={"A": "b"})
    assert (r.stdout, r.stderr, r.return_code, r.reason, r.ok) == ("out\n", "err\n", 3, "exit", False)
    assert r.exec.id.startswith("exec_") and r.exec.user == "user"
    with pytest.raises(CommandFailedError, match="code 3: err") as e:
        r.check()
    assert e.value.result is r
    assert sandbox.run(["printf", "%s", "a b"]).stdout == "a b"
    assert sandbox.run("pwd; id -un; echo $A", env={"A": "x"}, user="root").stdout == "/workspace\nroot\nx\n"
    assert sandbox.run("cat", stdin="ö\n").stdout == "ö\n"
    assert sandbox.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert sandbox.run("pwd", job_id="j1").stdout == "/workspace/j1\n"
    sandbox.run("cd /usr; X=1", shell="main")
    assert sandbox.run("pwd; echo $X", shell="main").stdout == "/usr\n1\n"


def test_time_limit(sandbox: Sandbox) -> None:
    r = sandbox.run("echo begun; sleep 60", timeout_seconds=0.5)
    assert r.reason == "timeout" and r.stdout == "begun\n" and r.error_code == "execution_time_exceeded"
    with pytest.raises(CommandFailedError, match="timeout"):
        r.check()
    with pytest.raises(CommandFailedError):
        sandbox.run("false", check=True)


def test_streams_while_it_runs(sandbox: Sandbox) -> None:
    got: list[tuple[str, float]] = []
    began = time.monotonic()
    r = sandbox.run("echo a; sleep 0.7; echo b >&2", on_stdout=lambda t: got.append((t, time.monotonic())),
                    on_stderr=lambda t: got.append((t, time.monotonic())))
    assert [t for t, _ in got] == ["a\n", "b\n"] and (r.stdout, r.stderr) == ("a\n", "b\n")
    assert got[1][1] - got[0][1] > 0.5 and time.monotonic() - began < 30


def test_output_as_bytes(sandbox: Sandbox) -> None:
    got: list[tuple[str, bytes]] = []
    sandbox.run("printf '\\377\\000'; echo e >&2", on_output=lambda c: got.append((c.stream, c.data)))
    assert sorted(got) == [("stderr", b"e\n"), ("stdout", b"\xff\0")]


def test_another_client(sandbox: Sandbox) -> None:
    with Client(**sandbox.client_settings) as other:
        assert other.sandboxes.get(sandbox.id).id == sandbox.id
    with pytest.raises(RuntimeError, match="make another client"):
        other.info()


def test_output_files(sandbox: Sandbox, client: Client) -> None:
    files = sandbox.run("printf 1 >$OUTPUT_DIR/a.txt; printf 22 >$OUTPUT_DIR/b.txt").files
    assert [client.files.read(f) for f in files] == [b"1", b"22"]


def test_background(sandbox: Sandbox) -> None:
    c = sandbox.run("read x; echo got $x; echo e >&2; read y; exit 4", background=True, open_stdin=True)
    assert c.exec.state == "running" and c.pid
    with pytest.raises(TimeoutError):
        c.wait(timeout=0.1)
    c.stdin("one\n")
    stream = iter(c)
    first, second = sorted([next(stream), next(stream)], key=lambda chunk: chunk.stream)
    assert (first.stream, second.data, second.offset, second.text) == ("stderr", b"got one\n", 0, "got one\n")
    assert c.output().stdout == "got one\n"
    c.stdin("two\n", close=True)
    assert list(stream) == []
    assert c.wait().return_code == 4
    assert sandbox.command(c.id).wait(on_stdout=lambda t: None).stdout == "got one\n"
    assert c.id in [x.id for x in sandbox.commands()]

    c = sandbox.run("sleep 600", background=True)
    c.kill()
    r = c.wait(timeout=30)
    assert (r.return_code, r.reason) == (137, "killed")


def test_bytes_that_are_not_text(sandbox: Sandbox) -> None:
    c = sandbox.run(r"printf 'a\xff\x00b'", background=True)
    assert b"".join(x.data for x in c) == b"a\xff\x00b"


def test_idempotency_key(sandbox: Sandbox) -> None:
    first = sandbox.run("echo x >>/tmp/once; wc -l </tmp/once", idempotency_key="k1")
    again = sandbox.run("echo x >>/tmp/once; wc -l </tmp/once", idempotency_key="k1")
    assert first.exec.id == again.exec.id and again.stdout == "1\n"
    with pytest.raises(ConflictError):
        sandbox.run("echo other", idempotency_key="k1")


def test_interrupted_callback_kills_the_command(sandbox: Sandbox) -> None:
    def fail(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sandbox.run("echo $$; exec sleep 613", on_stdout=fail)
    last = sandbox.commands()[-1]
    assert last.wait(timeout=30).reason == "killed"
    assert sandbox.run("pgrep -f 'sleep [6]13'").return_code == 1


def test_pty(sandbox: Sandbox) -> None:
    with sandbox.pty("bash --norc", rows=30, cols=100, env={"PS1": "$ "}) as pty:
        pty.read_until("$ ")
        pty.send("stty size; echo $TERM\n")
        assert b"30 100\r\nxterm-256color\r\n" in pty.read_until("xterm-256color\r\n")
        pty.resize(40, 120)
        pty.send("stty size\n")
        assert b"40 120" in pty.read_until("40 120")
        pty.send("exit 5\n")
        b"".join(pty)
        assert pty.wait().return_code == 5
    with sandbox.pty(["cat"]) as pty:
        pty.send("hello\n")
        pty.read_until("hello\r\nhello\r\n")
    assert pty.wait(timeout=30).reason == "killed"


def test_life(client: Client, sandbox: Sandbox) -> None:
    with Sandbox.create(client=client, name="living", env={"A": "b"}, limits={"memory_bytes": 256 << 20},
                        idle_timeout_seconds=100) as s:
        assert s.info.state == "running" and s.info.limits.memory_bytes == 256 << 20
        assert s.run("echo $A").stdout == "b\n"
        assert Sandbox.get("living", client=client).id == s.id
        assert {s.id, sandbox.id} <= {x.id for x in client.sandboxes.list()}
        assert [x.id for x in Sandbox.list(client=client, labels={"of": "tests"})] == [sandbox.id]
        again = Sandbox.create(client=client, name="living", existing=True, image="other")
        assert again.id == s.id and [d.field for d in again.info.differences or []] == ["image"]
        again.__exit__(None, None, None)  # it made none, so it deletes none
        before = s.info.expires_at
        assert s.renew(3600) > before and s.info.expires_at > before
        assert s.update(labels={"x": "y"}, lease={"at_end": "pause"}).lease.at_end == "pause"
        assert s.pause().state == "paused"
        assert s.resume().state == "running"
        assert s.stop().state == "stopped"
        with pytest.raises(ConflictError):
            s.pause()
        assert s.start().generation == 2
        s.run("echo x >/tmp/outside; echo y >/workspace/inside")
        s.reset()
        assert s.run("cat /tmp/outside; cat inside").stdout == "y\n"
        assert s.refresh().running_execs == 0
        assert s.stats().current is not None
    with pytest.raises((ExpiredError, NotFoundError)):
        Sandbox.get(s.id, client=client)
    s.delete()


def test_without_a_client() -> None:
    with Sandbox.create() as s:
        assert s.run("echo x").ok
        assert s.id in [x.id for x in Sandbox.list()]
        found = Sandbox.get(s.id)
        with found:
            assert found.run("echo y").stdout == "y\n"
        assert s.run("echo z").ok


def test_snapshots_and_forks(client: Client) -> None:
    with Sandbox.create(client=client) as s:
        s.files.write("a", "1")
        snapshot = s.snapshot("sdk-before", labels={"l": "1"})
        s.files.write("a", "2")
        forks = s.fork(2)
        assert [f.files.read("a") for f in forks] == [b"2", b"2"] and len({f.id for f in forks}) == 2
        for f in forks:
            f.delete()
        s.restore(snapshot)
        assert s.files.read("a") == b"1" and s.run("cat a").stdout == "1"
        assert [x.id for x in s.snapshots()] == [snapshot.id]
        assert client.snapshots.get("sdk-before").id == snapshot.id
        assert [x.id for x in client.snapshots.list(labels={"l": "1"})] == [snapshot.id]
        with Sandbox.create(client=client, snapshot="sdk-before") as other:
            assert other.files.read("a") == b"1"
        client.snapshots.delete(snapshot.id)
        with pytest.raises(NotFoundError):
            s.restore("sdk-before")


def test_forks_of_a_sandbox_without_a_client() -> None:
    with Sandbox.create() as s:
        (fork,) = s.fork()
    with fork:  # the connections of s are shared with it
        assert fork.run("echo x").ok


def test_ports(sandbox: Sandbox, client: Client) -> None:
    server = sandbox.run("echo hello >index.html && exec python3 -m http.server 8123 --bind 127.0.0.1",
                         background=True)
    deadline = time.monotonic() + 30
    while 8123 not in [p.port for p in sandbox.ports.list()]:
        assert time.monotonic() < deadline, server.output()
        time.sleep(0.05)
    with httpx.Client(trust_env=False) as http:
        # A name below localhost may resolve nowhere, so requests go to the daemon's address with it as Host.
        where = httpx.URL(sandbox.ports.url(8123, expires_in_seconds=60))
        host = where.netloc.decode()
        first = http.get(f"{client.url}{where.raw_path.decode()}", headers={"Host": host})
        assert first.is_redirect
        cookie = first.headers["set-cookie"].split(";")[0]
        assert http.get(f"{client.url}/", headers={"Host": host, "Cookie": cookie}).text == "hello\n"
        below = http.get(sandbox.ports.api_url(8123), headers={"X-Api-Key": client.transport.key})
        assert below.text == "hello\n"
    assert sandbox.ports.withdraw(8123).all is False
    server.kill()


ECHO = """
import socket, threading

def answer(connection):
    with connection:
        got = b"".join(iter(lambda: connection.recv(65536), b""))
        connection.sendall(got[::-1])

with socket.create_server(("127.0.0.1", 8124)) as listener:
    print("listens", flush=True)
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],)).start()
"""


def connect(forward: Forward) -> socket.socket:
    return socket.create_connection((forward.host, forward.port), timeout=30)


def exchange(forward: Forward, data: bytes) -> bytes:
    """Sends data, ends that direction, and returns all that comes back."""
    with connect(forward) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_forward(sandbox: Sandbox) -> None:
    with sandbox.ports.forward(8124) as forward:
        assert exchange(forward, b"nobody listens") == b""
        server = sandbox.run(["python3", "-c", ECHO], background=True)
        assert next(iter(server)).text.startswith("listens")
        data = bytes(range(256)) * 8192
        with connect(forward) as idle:
            assert exchange(forward, b"abc") == b"cba"
            assert exchange(forward, data) == data[::-1]
            with pytest.raises(OSError):
                sandbox.ports.forward(8124, forward.port)
            forward.close()
            assert idle.recv(1) == b""  # close ends what is open
        with pytest.raises(ConnectionRefusedError):
            connect(forward)
        server.kill()


def test_inputs_and_manifest(sandbox: Sandbox, client: Client) -> None:
    stored: StoredFile = client.files.upload(b"1,2\n", filename="in.csv")
    assert sandbox.run("cat $INPUT_DIR/in.csv; echo made >out.txt", files=[stored.id], job_id="j2").stdout == "1,2\n"
    assert sandbox.add_inputs([stored.id])
    assert "out.txt" in str(sandbox.manifest("j2"))


def test_one_client_for_many_threads(sandbox: Sandbox) -> None:
    out: list[str] = []
    threads = [threading.Thread(target=lambda i=i: out.append(sandbox.run(f"echo {i}").stdout)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(out) == sorted(f"{i}\n" for i in range(12))


def test_unsupported_language(sandbox: Sandbox) -> None:
    with pytest.raises(UnsupportedError, match="full"):
        sandbox.code.run("1", language="r")
