# The oldest Python SDK of E2B that takes URLs. A sandbox that it connects to is named by its token alone.
from e2b import CommandExitException, NotFoundException, Sandbox, SandboxQuery, Template

box = Sandbox.create(timeout=300, metadata={"test": "old"})
assert box.commands.run("echo hi").stdout == "hi\n"
same = Sandbox.connect(box.sandbox_id, timeout=300)
same.files.write("a.txt", "text")
assert same.files.read("a.txt") == "text" and same.files.list(".")
try:
    same.commands.run("exit 4")
except CommandExitException as error:
    assert error.exit_code == 4
else:
    raise AssertionError("no error")
try:
    same.files.read("none")
except NotFoundException:
    pass
else:
    raise AssertionError("no error")
watch = same.files.watch_dir(".")
watch.stop()
listed = Sandbox.list(query=SandboxQuery(metadata={"test": "old"})).next_items()
assert [s.sandbox_id for s in listed] == [box.sandbox_id]
box.set_timeout(60)
assert box.is_running() and box.kill() and not box.is_running() and not box.kill()
Template.build(Template().from_image("base").copy("main.py", "/opt/").run_cmd("echo built > built"), alias="old-sdk")
built = Sandbox.create("old-sdk")
assert built.commands.run("cat built; wc -l < /opt/main.py").stdout.startswith("built\n") and built.kill()
print("done")
