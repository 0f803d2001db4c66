"""Works in a sandbox through the backend that langchain-e2b gives Deep Agents."""

import asyncio

import e2b
from langchain_e2b import AsyncE2BSandbox, E2BSandbox

DIR = "/home/user/report"


def ok(result):
    assert result.error is None, result
    return result


def work(box):
    ran = box.execute("echo out; echo err >&2; exit 3")
    assert ran.exit_code == 3 and "out" in ran.output and "err" in ran.output, ran
    ran = box.execute("pwd")
    assert ran.output.strip() == "/home/user" and ran.exit_code == 0, ran

    ok(box.write(DIR + "/sum.py", "total = 0\nfor n in range(10):\n    total += n\nprint('total', total)\n"))
    assert box.write(DIR + "/sum.py", "again").error, "a second write of a file was not refused"
    assert box.execute(f"python3 {DIR}/sum.py").output.strip() == "total 45"
    assert ok(box.edit(DIR + "/sum.py", "range(10)", "range(11)")).occurrences == 1
    assert box.edit(DIR + "/sum.py", "not there", "x").error
    assert box.execute(f"python3 {DIR}/sum.py").output.strip() == "total 55"
    assert "range(11)" in ok(box.read(DIR + "/sum.py")).file_data["content"]

    found = ok(box.grep("total +=", DIR)).matches
    assert [(m["path"], m["line"]) for m in found] == [(DIR + "/sum.py", 3)], found
    assert any(f["path"].endswith("sum.py") for f in ok(box.glob("*.py", DIR)).matches)
    assert any(f["path"].rstrip("/").endswith("report") for f in ok(box.ls("/home/user")).entries)

    data = bytes(range(256)) * 4096
    assert all(u.error is None for u in box.upload_files([(DIR + "/data.bin", data), (DIR + "/ü.txt", b"text")]))
    assert box.execute(f"wc -c <{DIR}/data.bin").output.strip() == str(len(data))
    down = box.download_files([DIR + "/data.bin", DIR + "/ü.txt", DIR + "/missing"])
    assert down[0].content == data and down[1].content == b"text", [d.error for d in down]
    assert down[2].error == "file_not_found", down[2]


async def work_async(box):
    ran = await box.aexecute("sleep 30", timeout=1)
    assert ran.exit_code != 0, ran
    ok(await box.awrite("/home/user/a.txt", "one\ntwo\n"))
    assert ok(await box.aedit("/home/user/a.txt", "two", "three")).occurrences == 1
    assert [m["line"] for m in ok(await box.agrep("three", "/home/user")).matches] == [2]
    assert (await box.adownload_files(["/home/user/a.txt"]))[0].content == b"one\nthree\n"


async def in_a_loop(sandbox_id):
    await work_async(AsyncE2BSandbox(sandbox=await e2b.AsyncSandbox.connect(sandbox_id)))


with e2b.Sandbox.create(timeout=180) as sandbox:
    work(E2BSandbox(sandbox=sandbox))
    asyncio.run(in_a_loop(sandbox.sandbox_id))
print("done")
