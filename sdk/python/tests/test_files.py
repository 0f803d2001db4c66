"""Files of sandboxes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from berth import InvalidArgumentError, NotFoundError, PermissionDeniedError, Sandbox


def test_read_and_write(sandbox: Sandbox) -> None:
    info = sandbox.files.write("d/a.txt", "ä")
    assert info.path == "/workspace/d/a.txt" and info.size_bytes == 2
    assert sandbox.files.read("d/a.txt") == "ä".encode() and sandbox.files.read_text("/workspace/d/a.txt") == "ä"
    sandbox.files.write("d/b", b"\x00\xff" * 1_000_000, mode=0o750)
    assert sandbox.files.read("d/b") == b"\x00\xff" * 1_000_000 and sandbox.files.stat("d/b").mode == "0750"
    sandbox.files.write("d/c", io.BytesIO(b"from a file"))
    sandbox.files.append("d/c", ", longer")
    assert sandbox.run("cat d/c").stdout == "from a file, longer"
    assert sandbox.files.exists("d/c") and not sandbox.files.exists("d/none")
    sandbox.files.move("d/c", "d/e")
    sandbox.files.mkdir("d/sub/dir")
    assert [f.path for f in sandbox.files.list("d")] == [
        "/workspace/d/a.txt", "/workspace/d/b", "/workspace/d/e", "/workspace/d/sub"]
    assert [f.path for f in sandbox.files.find("d", name="*.txt")] == ["/workspace/d/a.txt"]
    found = sandbox.files.grep("long.r", "d")
    assert [(m.path, m.line, m.column) for m in found.data if m.type == "match"] == [("/workspace/d/e", 1, 14)]
    sandbox.files.remove("d/e")
    sandbox.files.remove("d", recursive=True)
    with pytest.raises(NotFoundError) as e:
        sandbox.files.read("d/a.txt")
    assert e.value.code == "not_found" and e.value.status == 404 and e.value.request_id.startswith("req_")
    with pytest.raises(InvalidArgumentError):
        sandbox.files.read("")


def test_users(sandbox: Sandbox) -> None:
    sandbox.files.write("/root/x", "secret", user="root")
    with pytest.raises(PermissionDeniedError):
        sandbox.files.read("/root/x")
    assert sandbox.files.stat("/root/x", user="root").owner == "root"


def test_put_and_get(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    sandbox.files.put(tmp_path / "data.csv")
    assert sandbox.run("wc -l <data.csv").stdout == "2\n"
    assert sandbox.files.get("data.csv", tmp_path / "back.csv").read_text() == "a,b\n1,2\n"
    assert sandbox.files.get("data.csv", tmp_path) == tmp_path / "data.csv"

    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run.sh").write_text("echo ran\n")
    (tree / "sub" / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("sub/run.sh")
    sandbox.files.put(tree)
    assert sandbox.run("tree/sub/run.sh; cat tree/link").stdout == "ran\necho ran\n"
    back = sandbox.files.get("tree", tmp_path / "back")
    assert (back / "sub" / "run.sh").stat().st_mode & 0o777 == 0o755 and (back / "link").read_text() == "echo ran\n"
    with pytest.raises(NotFoundError):
        sandbox.files.get("none", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_names_that_lead_out_are_not_unpacked(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.run("mkdir -p evil && ln -s /etc evil/out && ln -s ../../../../x evil/up", check=True)
    with pytest.raises(tarfile.TarError):
        sandbox.files.get("evil", tmp_path / "evil")


def test_watch(sandbox: Sandbox) -> None:
    sandbox.files.mkdir("watched")
    with sandbox.files.watch("watched", recursive=True, entries=True) as watch:
        sandbox.run("echo 1 >watched/a; mkdir watched/d; rm watched/a; rmdir watched/d")
        seen: list[tuple[str, str]] = []
        for event in watch:
            seen.append((event.type, event.name or ""))
            if event.type == "create":
                assert event.name in ("a", "d")
            if event.type == "remove" and event.name == "d":
                break
    assert ("create", "a") in seen and ("write", "a") in seen and ("remove", "a") in seen
    with sandbox.files.watch("watched") as watch:
        sandbox.files.remove("watched", recursive=True)
        assert [e.type for e in watch][-1] == "remove"
