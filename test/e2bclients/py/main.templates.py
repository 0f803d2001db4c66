# Templates of the newest Python SDK of E2B: builds, names, tags, what sandboxes of them have, and what fails.
import asyncio
import os
import tempfile
import time

from e2b import AsyncTemplate, BuildException, Sandbox, SandboxException, Template, wait_for_port

NAME = "py-%d" % time.time()
HERE = tempfile.mkdtemp()


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("no " + kind.__name__)


def write(name, text, mode=0o644):
    path = os.path.join(HERE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def run(box, command, **more):
    return box.commands.run(command, **more).stdout


def steps():
    write("app/main.py", "print('app')\n")
    write("app/deep/it's [1].txt", "odd\n")
    write("app/skipped.log", "log\n")
    write("one.txt", "1\n")
    write("two.txt", "2\n")
    write("tool.sh", "#!/bin/sh\necho tool\n", 0o600)
    write(".dockerignore", "*.log\n**/*.log\n")
    if not os.path.lexists(os.path.join(HERE, "app/link")):  # it is called once for each build
        os.symlink("main.py", os.path.join(HERE, "app/link"))
    return (
        Template(file_context_path=HERE)
        .from_image("base")
        .set_envs({"COLOR": "blue \"green\"", "PLACE": "/srv/data"})
        .copy("app", "/opt/app")
        .copy("*.txt", "/srv/texts")
        .copy("tool.sh", "/usr/local/bin/tool", user="root", mode=0o755)
        .set_workdir("$PLACE")
        .run_cmd(["pwd > where", "id -un > who", "echo \"$COLOR\" > color"])
        .run_cmd("cat > /etc/motd-here <<'EOF'\na < b && c > d\nEOF", user="root")
        .make_dir("/srv/data/made", mode=0o700)
        .make_symlink("/srv/data/who", "/srv/data/me")
        .rename("/srv/data/color", "/srv/data/colour")
    )


def builds():
    logs = []
    assert not Template.exists(NAME)
    info = Template.build(steps(), NAME + ":v1", tags=["stable"], cpu_count=1, memory_mb=256, on_build_logs=logs.append)
    assert (info.template_id, sorted(info.tags)) == (NAME, ["stable", "v1"]), info
    text = "\n".join(entry.message for entry in logs)
    assert "Uploaded 'app'" in text and "RUN pwd > where" in text, text
    assert Template.exists(NAME + ":v1") and Template.exists(NAME) and not Template.exists(NAME + ":v2")
    fails(SandboxException, lambda: Sandbox.create(NAME))  # it has no default tag
    box = Sandbox.create(NAME + ":v1")
    assert run(box, "cat where who colour; pwd; whoami") == "/srv/data\nuser\nblue \"green\"\n/srv/data\nuser\n"
    assert run(box, "cat me; echo $PLACE; cat /etc/motd-here") == "user\n/srv/data\na < b && c > d\n"
    assert run(box, "cat '/opt/app/deep/it'\"'\"'s [1].txt'; readlink /opt/app/link; ls /opt/app") == \
        "odd\nmain.py\ndeep\nlink\nmain.py\n"
    assert run(box, "cat /srv/texts/one.txt /srv/texts/two.txt; stat -c '%U %a' /usr/local/bin/tool; tool") == \
        "1\n2\nroot 755\ntool\n"
    assert run(box, "stat -c '%U %a' made; stat -c %U /opt/app/main.py") == "user 700\nuser\n"
    assert box.get_info().memory_mb == 256 and box.get_info().cpu_count == 1, box.get_info()
    assert box.kill()
    return info


def again(first):
    logs = []
    info = Template.build(steps(), NAME + ":v1", on_build_logs=logs.append)
    text = "\n".join(entry.message for entry in logs)
    assert "Skipping upload of 'app'" in text and "CACHED" in text, text
    assert info.build_id != first.build_id
    tags = {t.tag: t.build_id for t in Template.get_tags(NAME)}
    assert tags == {"v1": info.build_id, "stable": first.build_id}, tags
    box = Sandbox.create(NAME + ":" + first.build_id)  # a build by its ID
    assert box.kill()
    assert Template.assign_tags(NAME + ":v1", ["default", "next"]).build_id == info.build_id
    assert Template.exists(NAME)
    Template.remove_tags(NAME, ["next", "stable"])
    assert {t.tag for t in Template.get_tags(NAME)} == {"v1", "default"}
    fails(SandboxException, lambda: Sandbox.create(NAME + ":" + first.build_id))
    fails(SandboxException, lambda: Template.get_tags("never-built"))


def start():
    template = (
        Template().from_template(NAME)
        .set_user("root").set_workdir("/opt/app")
        .set_start_cmd("python3 -m http.server 8123", wait_for_port(8123))
    )
    Template.build(template, NAME + "-server")
    box = Sandbox.create(NAME + "-server")
    assert "main.py" in run(box, "curl -s http://127.0.0.1:8123/; whoami; pwd")
    assert run(box, "whoami; pwd") == "root\n/opt/app\n"
    assert run(box, "whoami", user="user") == "user\n"
    assert box.files.write("f", "x").path == "/root/f"
    assert box.kill()


def dockerfile():
    text = """FROM e2bdev/base
ENV WHERE=/made GREETING="hello there"
WORKDIR $WHERE
COPY one.txt two.txt ./
RUN <<EOF
cat one.txt two.txt > both
echo "$GREETING" >> both
EOF
COPY <<EOF /made/written
of $WHERE
EOF
USER nobody
"""
    template = Template(file_context_path=HERE).from_dockerfile(text)
    done = asyncio.run(AsyncTemplate.build(template, NAME + "-file"))
    assert done.name == NAME + "-file"
    box = Sandbox.create(NAME + "-file")
    assert run(box, "cat both written; stat -c %U one.txt; whoami; pwd") == \
        "1\n2\nhello there\nof /made\nroot\nnobody\n/made\n"
    assert box.kill()


def failures():
    logs = []
    broken = Template().from_image("base").run_cmd("true").run_cmd("echo why >&2; exit 7")
    error = fails(BuildException, lambda: Template.build(broken, NAME + "-broken", on_build_logs=logs.append))
    assert 'process "echo why >&2; exit 7"' in str(error) and "exit code 7" in str(error), error
    assert any(e.message == "why" for e in logs), logs
    assert not Template.exists(NAME + "-broken")
    info = Template.build_in_background(Template().from_image("base").run_cmd("sleep 1"), NAME + "-later")
    states = set()
    while True:
        status = Template.get_build_status(info)
        states.add(status.status.value)
        if status.status.value in ("ready", "error"):
            break
        time.sleep(0.1)
    assert status.status.value == "ready" and states - {"ready"} <= {"building", "waiting"} and len(states) > 1, states
    login = Template().from_image("base", username="a", password="b")
    assert "fromImageRegistry" in str(fails(BuildException, lambda: Template.build(login, NAME + "-login")))
    assert "fromTemplate" in str(fails(BuildException, lambda: Template.build(Template().from_template("none"), "x1")))
    assert "taken" in str(fails(Exception, lambda: Template.build(Template().from_image("base"), "base")))
    bad = Template().from_image("base").set_start_cmd("echo broken >&2; exit 3", "false")
    Template.build(bad, NAME + "-bad")
    assert "broken" in str(fails(SandboxException, lambda: Sandbox.create(NAME + "-bad")))
    assert not [b for b in Sandbox.list().next_items() if b.template_id == NAME + "-bad"]


def gone():
    for name in NAME, NAME + "-server", NAME + "-file", NAME + "-later", NAME + "-bad":
        assert Sandbox.delete_snapshot(name), name  # the SDK's only DELETE of a template
        assert not Template.exists(name)


first = builds()
again(first)
start()
dockerfile()
failures()
gone()
print("done")
