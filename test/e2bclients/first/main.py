# The first Python SDKs of E2B that are served: they take a domain alone.
import urllib.request

from e2b_code_interpreter import Sandbox

box = Sandbox.create("base", timeout=300, metadata={"test": "first"})
assert box.commands.run("echo hi").stdout == "hi\n"
box.files.write("a.txt", "text")
same = Sandbox.connect(box.sandbox_id, timeout=300)
assert same.files.read("a.txt") == "text" and same.files.get_info("a.txt").size == 4
run = same.run_code("print('out')\n40 + 2")
assert (run.text, run.logs.stdout) == ("42", ["out\n"]), run
box.commands.run("exec python3 -m http.server 8000", background=True)
box.commands.run("until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done")
with urllib.request.urlopen("https://" + box.get_host(8000) + "/a.txt") as answer:
    assert answer.read() == b"text"
with urllib.request.urlopen(box.download_url("a.txt")) as answer:
    assert answer.read() == b"text"
again = Sandbox.connect(box.sandbox_id, timeout=300)
assert again.files.read("a.txt") == "text"
assert again.kill() and not again.is_running() and not again.kill()
print("done")
