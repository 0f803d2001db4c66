"""What the daemon has besides containers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from berth import Client, InvalidArgumentError, NotFoundError, Sandbox


def test_files(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    f = client.files.upload(tmp_path / "a.csv", expires_in_seconds=3600)
    assert f.filename == "a.csv" and f.size_bytes == 2 and f.mime_type == "text/csv" and f.expires_at
    with (tmp_path / "a.csv").open("rb") as opened:
        other = client.files.upload(opened)
    assert other.filename == "a.csv"
    assert client.files.get(f.id) == f and {f.id, other.id} <= {x.id for x in client.files.list()}
    assert client.files.read(f) == b"1\n" and client.files.download(f.id, tmp_path / "b").read_text() == "1\n"
    assert client.files.download(f, tmp_path) == tmp_path / "a.csv"
    client.files.delete(f.id)
    with pytest.raises(NotFoundError):
        client.files.get(f.id)


def test_skills(client: Client, tmp_path: Path) -> None:
    skill = tmp_path / "pdf-forms"
    (skill / "sub").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf-forms\ndescription: Fills in forms\n---\nUse pypdf.\n")
    (skill / "sub" / "a.py").write_text("1")
    made = client.skills.create(skill, display_name="Forms")
    assert made.display_name == "Forms" and made.id in [s.id for s in client.skills.list()]
    (skill / "sub" / "a.py").write_text("2")
    second = client.skills.add_version(made.id, skill)
    assert second.name == "pdf-forms" and second.description == "Fills in forms"
    assert [v.id for v in client.skills.versions(made.id)][0] == second.id
    assert client.skills.read(made.id).startswith(b"PK") and client.skills.get(made.id).latest_version == second.id
    client.skills.delete(made.id)
    with pytest.raises(InvalidArgumentError):
        client.skills.create(skill / "sub")


def test_stored_tools(client: Client) -> None:
    name = f"count_{time.time_ns()}"
    tool = client.tools.create(name, {"code": "def run(input):\n    return {'n': len(input['text'].split())}",
                                         "input_schema": [{"name": "text", "field_type": "STRING", "required": True}]},
                               description="Counts words")
    run = client.tools.run(name, {"text": "to be"})
    assert run.state == "succeeded" and run.output == {"n": 2} and run.version == tool.version == 1
    assert client.tools.update(name, description="Counts").version == 2
    assert client.tools.get(name, version=1).description == "Counts words"
    with pytest.raises(InvalidArgumentError) as e:
        client.tools.run(name, {})
    assert e.value.item == "input.text"
    assert [r.id for r in client.tools.runs(tool=name)] == [run.id] and client.tools.get_run(run.id).id == run.id
    waiting = client.tools.update(name, approval_action="review")
    parked = client.tools.run(name, {"text": "a"})
    assert parked.state == "parked" and waiting.version == 3
    (approval,) = client.approvals.list(kind="tool_run")
    assert client.approvals.get(approval.id).id == approval.id
    assert client.approvals.approve(approval.id).state == "approved"
    done = client.tools.get_run(parked.id, wait_seconds=60)
    assert done.output == {"n": 1}
    client.tools.delete(name)


def test_keys_webhooks_audit(client: Client, sandbox: Sandbox) -> None:
    me = client.keys.self()
    assert me.admin and me.usage.sessions >= 1
    key = client.keys.create("ci", owner="team", expires_in_seconds=100, quota={"sessions": 2})
    assert client.keys.update(key.id, name="cd", quota={"sessions": 3}).quota.sessions == 3
    assert client.keys.get(key.id).name == "cd" and key.id in [k.id for k in client.keys.list()]
    with Client(key=key.secret) as other:
        assert other.sandboxes.list() == []
    client.keys.revoke(key.id)

    hook = client.webhooks.create("https://93.184.216.34/hook", types=["exec."], description="d")
    assert hook.secret.startswith("whsec_") and [w.id for w in client.webhooks.list()] == [hook.id]
    assert client.webhooks.update(hook.id, enabled=False).enabled is False
    assert client.webhooks.get(hook.id).types == ["exec."]
    client.webhooks.delete(hook.id)

    sandbox.run("true")
    events = client.events.list(container=sandbox.id, types=["exec."])
    assert [e.type for e in events][-2:] == ["exec.started", "exec.ended"]
    entries = list(client.audit.read(container=sandbox.id, act="exec."))
    assert entries[-1]["act"] == "exec.end" and client.audit.head()


def test_daemon(client: Client, sandbox: Sandbox, tmp_path: Path) -> None:
    assert client.info().default_image == "base" and "base" in [i.name for i in client.images.list()]
    assert sandbox.id in [s.container_id for s in client.stats()] and client.workspaces()
    assert client.builds.list() == []
    snapshot = sandbox.snapshot()
    image = client.snapshots.commit(snapshot.id, "sdk-made")
    assert image.name == "sdk-made" and client.snapshots.export(snapshot.id, tmp_path / "x.tar").stat().st_size > 1000
    client.images.remove("sdk-made")
    client.snapshots.delete(snapshot.id)
    with pytest.raises(NotFoundError):
        client.snapshots.get(snapshot.id)
