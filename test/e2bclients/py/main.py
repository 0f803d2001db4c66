# The newest Python SDKs of E2B, unmodified.
import http.client
import os
import threading
import time
import urllib.parse
import urllib.request

from e2b import (CommandExitException, InvalidArgumentException, NotFoundException, PtySize, SandboxNotFoundException,
                 SandboxNotRunningException, SandboxQuery, SandboxState, TimeoutException)
from e2b_code_interpreter import Sandbox


NAME = "a b %d" % time.time()


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("no " + kind.__name__)


def until(what, call):
    end = time.monotonic() + 60
    while not call():
        assert time.monotonic() < end, "not within a minute: " + what
        time.sleep(0.02)


def commands(s):
    run = s.commands.run("echo out; echo err >&2; pwd; echo $GIVEN $MORE", envs={"MORE": "more"})
    assert (run.stdout, run.stderr, run.exit_code) == ("out\n/home/user\ngiven more\n", "err\n", 0), run
    assert fails(CommandExitException, lambda: s.commands.run("exit 3")).exit_code == 3
    parts = []
    s.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=parts.append)
    assert "".join(parts) == "1\n2\n3\n", parts
    assert s.commands.run("whoami", user="root").stdout == "root\n"
    assert s.commands.run("sudo id -u").stdout == "0\n"
    fails(TimeoutException, lambda: s.commands.run("sleep 1000", timeout=1))
    fails(InvalidArgumentException, lambda: s.commands.run("true", cwd="/no/such"))
    cat = s.commands.run("cat", background=True, stdin=True)
    cat.disconnect()
    assert cat.pid in [p.pid for p in s.commands.list()]
    again = s.commands.connect(cat.pid)
    s.commands.send_stdin(cat.pid, "fed\n")
    s.commands.close_stdin(cat.pid)
    assert again.wait().stdout == "fed\n"
    sleep = s.commands.run("sleep 1000", background=True)
    s.commands.run("kill -0 %d" % sleep.pid)
    assert sleep.kill()
    fails(CommandExitException, sleep.wait)
    assert not s.commands.kill(sleep.pid)
    assert len(s.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3000000


def terminal(s):
    out = []
    pty = s.pty.create(PtySize(rows=24, cols=80))
    s.pty.resize(pty.pid, PtySize(rows=31, cols=91))
    s.pty.send_stdin(pty.pid, b"stty size; exit\n")
    pty.wait(on_pty=out.append)
    assert b"31 91" in b"".join(out), out


def files(s):
    watch = s.files.watch_dir("/home/user", recursive=True)
    assert s.files.write("a/b.txt", "hello").path == "/home/user/a/b.txt"
    assert s.files.read("a/b.txt") == s.files.read("a/b.txt", gzip=True) == "hello"
    assert b"".join(s.files.read("a/b.txt", format="stream")) == b"hello"
    s.files.write_files([{"path": "/tmp/1", "data": b"1"}, {"path": "/tmp/2", "data": "2"}])
    assert s.files.exists("/tmp/2") and not s.files.exists("/tmp/3")
    info = s.files.get_info("a/b.txt")
    assert (info.size, info.owner, info.permissions) == (5, "user", "-rw-r--r--"), info
    assert s.files.make_dir("d") and not s.files.make_dir("d")
    assert s.files.rename("a/b.txt", "d/c.txt").path == "/home/user/d/c.txt"
    s.commands.run("ln -s c.txt /home/user/d/link")
    found = {e.path: e for e in s.files.list("/home/user", depth=2)}
    assert found["/home/user/d/link"].symlink_target == "/home/user/d/c.txt" and "/home/user/a" in found
    s.files.remove("d")
    fails(NotFoundException, lambda: s.files.read("d/c.txt"))
    seen = []
    until("the watch tells of all", lambda: seen.extend((e.name, e.type.value) for e in watch.get_new_events()) or
          {("a/b.txt", "create"), ("a/b.txt", "write"), ("a/b.txt", "rename"), ("d/c.txt", "remove")} <= set(seen))
    watch.stop()
    entries = s.files.watch_dir("/home/user", include_entry=True)
    meta = {"author": "me", "purpose": "test"}
    assert s.files.write("m.txt", "x", metadata=meta).metadata == meta == s.files.get_info("m.txt").metadata
    until("the watch has the metadata", lambda: any(e.entry and e.entry.metadata == meta
                                                    for e in entries.get_new_events()))
    entries.stop()
    s.files.write("m.txt", "y")
    assert s.files.get_info("m.txt").metadata is None
    for url in s.download_url("/tmp/1"), s.download_url("/tmp/1", use_signature_expiration=600):
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"1"


def code(s):
    run = s.run_code("x = 1\nprint('hello')\nx + 1", on_stdout=lambda m: None)
    assert (run.text, run.logs.stdout, run.execution_count) == ("2", ["hello\n"], 1), run
    run = s.run_code("import os; os.environ['ONCE'], os.environ['GIVEN'], os.getcwd()", envs={"ONCE": "1"})
    assert run.text == "('1', 'given', '/home/user')", run
    assert s.run_code("'ONCE' in os.environ").text == "False"
    assert s.run_code("1 / 0").error.name == "ZeroDivisionError"
    plot = s.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title('T')\nplt.show()").results[0]
    assert plot.png and plot.chart.type.value == "line" and plot.chart.title == "T", plot
    pie = s.run_code("plt.pie([90, 10])\nplt.show()").results[0]
    assert [e.angle for e in pie.chart.elements] == [324, 36], pie.chart
    saved = "from PIL import Image\nImage.new('RGB', (4, 4)).save('/tmp/image.png')"
    assert [bool(r.png) for r in s.run_code(saved).results] == [True]
    context = s.create_code_context(cwd="/tmp")
    run = s.run_code("import os; os.getcwd()", context=context)
    assert run.text == "/tmp", run
    assert context.id in [c.id for c in s.list_code_contexts()]
    s.remove_code_context(context)
    fails(NotFoundException, lambda: s.run_code("1", context=context))
    fails(TimeoutException, lambda: s.run_code("import time\nkept = 5\ntime.sleep(1000)", timeout=2))
    assert s.run_code("kept").text == "5"
    assert s.run_code("echo $0", language="bash").logs.stdout


def visit(s, port, **headers):
    host = s.get_host(port)
    if "E2B_DOMAIN" in os.environ:
        conn = http.client.HTTPSConnection(host, timeout=60)
    else:  # without a domain no resolver knows the names, so the address is not looked up
        at = urllib.parse.urlsplit(os.environ["E2B_API_URL"])
        conn = http.client.HTTPConnection(at.hostname, at.port, timeout=60)
    conn.request("GET", "/x?y=1", headers={"Host": host, **headers})
    return conn.getresponse()


def serve(s):
    s.commands.run("mkdir -p /tmp/site && echo served > /tmp/site/x")
    server = s.commands.run("cd /tmp/site && exec python3 -m http.server 8000", background=True)
    s.commands.run("until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
    return server


def ports(s):
    server = serve(s)
    got = visit(s, 8000)
    assert (got.status, got.read()) == (200, b"served\n"), got.status
    assert visit(s, 8001).status == 502
    assert s.traffic_access_token is None
    s.update_network({"deny_out": ["0.0.0.0/0"]})
    assert visit(s, 8000).status == 200
    private = Sandbox.create("base", network={"allow_public_traffic": False})
    serve(private)
    token = {"e2b-traffic-access-token": private.traffic_access_token}
    assert visit(private, 8000).status == 403 and visit(s, 8000, **token).status == 200
    got = visit(private, 8000, **token)
    assert (got.status, got.read()) == (200, b"served\n"), got.status
    assert private.run_code("1 + 1").text == "2"
    assert private.kill() and visit(private, 8000, **token).status == 502
    assert server.kill()


def life(s):
    mine = SandboxQuery(metadata={"test": NAME})
    assert [x.sandbox_id for x in Sandbox.list(query=mine).next_items()] == [s.sandbox_id]
    s.set_timeout(60)
    info = s.get_info()
    assert (info.end_at - info.started_at).total_seconds() < 200 and info.metadata == {"test": NAME}
    assert Sandbox.connect(s.sandbox_id, timeout=600).get_info().end_at > info.end_at
    sleep = s.commands.run("sleep 1000", background=True)
    assert s.pause() and not s.pause() and not s.is_running() and s.get_info().state == SandboxState.PAUSED
    fails(SandboxNotRunningException, lambda: s.commands.run("true"))
    s.connect(timeout=600)
    s.commands.run("kill -0 %d" % sleep.pid)
    snapshot = s.create_snapshot()
    fork = Sandbox.create(snapshot.snapshot_id)
    assert fork.files.read("/tmp/1") == "1" and fork.kill()
    forks = s.fork(count=2)
    assert [f.files.read("/tmp/1") for f in forks] == ["1", "1"] and all(f.kill() for f in forks)
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) and not Sandbox.delete_snapshot(snapshot.snapshot_id)
    until("there are metrics", s.get_metrics)
    lost = Sandbox.create("base")
    lost.run_code("1")
    threading.Timer(1, lost.kill).start()  # the cell is endless: it is under way whenever that comes
    fails(TimeoutException, lambda: lost.run_code("import time; time.sleep(1000)", timeout=300))
    killer = threading.Thread(target=lambda: until("it runs", s.commands.list) or s.kill())
    killer.start()
    fails(SandboxNotRunningException, lambda: s.commands.run("sleep 1000"))
    killer.join()
    assert not s.is_running() and not s.kill()
    fails(SandboxNotFoundException, s.get_info)


box = Sandbox.create("base", timeout=300, metadata={"test": NAME}, envs={"GIVEN": "given"})
for part in commands, terminal, files, code, ports, life:
    part(box)
print("done")
