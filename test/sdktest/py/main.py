"""Drives the edge with the official Python SDK.

It prints one line per row of the contract, "PASS 9" or "FAIL 9 why"; sdk_test.go reads them.
"""

import hashlib
import io
import os
import pathlib
import re
import tempfile
import time
import traceback
from datetime import timedelta

import anthropic
from anthropic.lib import files_from_dir

BASE, STRICT, SMALL, KEY = (os.environ["BERTH_" + name] for name in ("BASE_URL", "STRICT_URL", "SMALL_URL", "API_KEY"))


def make(url, **more):
    return anthropic.Anthropic(base_url=url, **{"api_key": KEY, **more})


client, strict = make(BASE), make(STRICT)


def row(n):
    """Runs the decorated check at once and reports it."""

    def run(check):
        try:
            check()
            print(f"PASS {n}", flush=True)
        except Exception:
            print(f"FAIL {n} " + traceback.format_exc().replace("\n", " "), flush=True)

    return run


def fails(call, kind, code=None):
    """Calls, and returns the SDK error of this class and error code that it must raise."""
    try:
        call()
    except anthropic.APIStatusError as err:
        assert isinstance(err, kind) and err.error_code == code, repr(err)
        return err
    raise AssertionError("no error")


def upload(name, kind, content):
    return client.files.upload(file=(name, content, kind))


@row(1)
def keys():
    client.files.list()
    make(BASE, default_headers={"X-Api-Key": KEY}).files.list()
    err = fails(make(BASE, api_key="wrong").files.list, anthropic.AuthenticationError)
    assert err.type == "authentication_error", err


@row(3)
def unknowns():
    client.files.list(extra_query={"beta": "true", "color": "blue"},
                      extra_headers={"anthropic-beta": "nobody-knows-1999-01-01"})


@row(4)
def request_ids():
    assert re.match(r"req_\w+$", client.files.with_raw_response.list().headers["request-id"])
    err = fails(lambda: client.files.retrieve_metadata("file_0000000000000000000000"), anthropic.NotFoundError)
    assert re.match(r"req_\w+$", err.request_id) and err.body["request_id"] == err.request_id, err.body


@row(6)
def error_codes():
    fails(lambda: make(SMALL).files.upload(file=b"x" * (3 << 20)), anthropic.BadRequestError, "storage_quota_exceeded")


@row(7)
def retries():
    # The server counts the attempts, and sdk_test.go checks the count.
    fails(lambda: client.files.retrieve_metadata("file_conflict"), anthropic.ConflictError)
    fails(lambda: client.files.retrieve_metadata("file_broken"), anthropic.InternalServerError)
    start = time.monotonic()
    client.files.retrieve_metadata("file_busy")
    assert time.monotonic() - start >= 1


@row(9)
def metadata():
    f = upload("data.csv", "text/csv", b"a,b\n1,2\n")
    got = f.model_dump(exclude={"id", "created_at"})
    want = {"type": "file", "filename": "data.csv", "mime_type": "text/csv", "size_bytes": 8,
            "downloadable": False, "expires_at": None}
    assert got == want, got
    assert f.id.startswith("file_")


@row(10)
def unnamed():
    # This SDK sends no filename parameter at all for bytes and plain readers.
    assert client.files.upload(file=b"x").filename == "unnamed.bin"
    assert client.files.upload(file=io.BytesIO(b"x")).filename == "unnamed.bin"


@row(11)
def names():
    for sent, kept in (("naïve 数据.csv", "naïve 数据.csv"), ("../../etc/passwd", "passwd"), ("100%25.csv", "100%25.csv")):
        got = upload(sent, "text/plain", b"x").filename
        assert got == kept, got
    for bad in ('a"b', "a\\b", "a<b", "a\r\nb", "a|b", "a?b"):
        fails(lambda: upload(bad, "text/plain", b"x"), anthropic.BadRequestError)


@row(12)
def expiry():
    f = client.files.upload(file=("x", b"x"), expires_in_seconds=3600)
    assert f.expires_at - f.created_at == timedelta(hours=1), f
    for seconds in (3599, 7776001):
        fails(lambda: client.files.upload(file=("x", b"x"), expires_in_seconds=seconds), anthropic.BadRequestError)


@row(16)
def paging():
    made = [strict.files.upload(file=("x", b"x")).id for _ in range(25)][::-1]
    for limit in (7, 25, 1000):
        assert [f.id for f in strict.files.list(limit=limit)] == made
    assert len(strict.files.list().data) == 20


@row(18)
def ids():
    f = upload("x", "text/plain", b"x")
    page = client.files.list(ids=[f.id, "file_0000000000000000000000", f.id])
    assert [f.id for f in page.data] == [f.id] and page.next_page is None, page
    fails(lambda: client.files.list(ids=[f.id], limit=1), anthropic.BadRequestError)


@row(19)
def legacy_list():
    page = client.beta.files.with_raw_response.list(limit=1, betas=["files-api-2025-04-14"]).http_response.json()
    assert sorted(page) == ["data", "first_id", "has_more", "last_id"] and page["has_more"], page
    assert page["first_id"] == page["last_id"] == page["data"][0]["id"] and "expires_at" not in page["data"][0], page


@row(21)
def download_modes():
    f = strict.files.upload(file=("x", b"mine"))
    fails(lambda: strict.files.download(f.id), anthropic.BadRequestError, "file_not_downloadable")
    assert client.files.download(upload("x", "text/plain", b"mine").id).read() == b"mine"


@row(22)
def produced():
    res = client.files.download(os.environ["BERTH_PRODUCED_ID"])
    data = res.read()
    assert hashlib.sha256(data).hexdigest() == os.environ["BERTH_PRODUCED_SHA256"]
    assert res.headers["content-type"] == "image/png" and res.headers["content-length"] == str(len(data)), res.headers


@row(24)
def deletes():
    big, digest, deleted = os.environ["BERTH_BIG_ID"], hashlib.sha256(), None
    with client.files.with_streaming_response.download(big) as res:
        for chunk in res.iter_bytes(65536):
            digest.update(chunk)
            deleted = deleted or client.files.delete(big)
    assert digest.hexdigest() == os.environ["BERTH_BIG_SHA256"]
    assert deleted.id == big and deleted.type == "file_deleted", deleted
    fails(lambda: client.files.delete(big), anthropic.NotFoundError)
    fails(lambda: client.files.retrieve_metadata(big), anthropic.NotFoundError)


@row("skills")
def skills():
    with tempfile.TemporaryDirectory() as tmp:
        notes = pathlib.Path(tmp, "notes")
        (notes / "scripts").mkdir(parents=True)
        (notes / "SKILL.md").write_text("---\nname: notes\ndescription: Nötes.\n---\n")
        (notes / "scripts" / "run.py").write_text("print(1)\n")
        k = client.skills.create(files=files_from_dir(notes))
        assert k.display_name == "notes" and k.source.type == "custom", k
        (notes / "SKILL.md").unlink()
        err = fails(lambda: client.skills.versions.create(k.id, files=files_from_dir(notes)), anthropic.BadRequestError)
        assert "SKILL.md" in err.message, err
    v = client.skills.versions.retrieve("latest", skill_id=k.id)
    assert v.id == k.latest_version_id and v.name == "notes" and v.description == "Nötes.", v
    assert {"xlsx", k.id} <= {s.id for s in client.skills.list(limit=1)}
    assert [s.id for s in client.beta.skills.list(source="anthropic")] == ["xlsx"]
    fails(lambda: client.skills.versions.delete(v.id, skill_id=k.id), anthropic.BadRequestError)
    assert client.skills.delete(k.id).type == "skill_deleted"
    fails(lambda: client.skills.retrieve(k.id), anthropic.NotFoundError)


talker = anthropic.Anthropic(base_url=os.environ["BERTH_MESSAGES_URL"], api_key=os.environ["BERTH_MESSAGES_KEY"])
CODE = {"type": "code_execution_20260120", "name": "code_execution"}
WEATHER = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def ask(model, *tools):
    return {"model": model, "max_tokens": 100, "tools": [CODE, *tools], "messages": [{"role": "user", "content": "go"}]}


def send(params, streamed):
    if not streamed:
        return talker.messages.create(**params)
    with talker.messages.stream(**params) as stream:
        return stream.get_final_message()


def kinds(message):
    return [getattr(getattr(b, "content", None), "type", b.type) for b in message.content]


def both(check):
    """Runs a check with a whole answer and with a stream."""
    return lambda: [check(streamed) for streamed in (False, True)]


@row(44)
@both
def blocks(streamed):
    m = send(ask("blocks"), streamed)
    assert kinds(m)[9:] == [
        "bash_code_execution_result", "bash_code_execution_tool_result_error", "text_editor_code_execution_create_result", "text_editor_code_execution_view_result",
        "text_editor_code_execution_str_replace_result", "text_editor_code_execution_tool_result_error", "code_execution_result", "code_execution_tool_result_error", "text",
    ], kinds(m)
    assert isinstance(m.content[9], anthropic.types.BashCodeExecutionToolResultBlock) and m.content[9].content.return_code == 3, m
    assert m.container.id.startswith("container_") and m.container.expires_at, m


@row(45)
def same_answers():
    got = []
    for streamed in (False, True):
        m = send(ask("blocks"), streamed).to_dict()
        m["content"][9]["content"]["content"] = None  # the file's ID
        for part in [m, *m["content"]]:
            part.pop("parsed_output", None)  # which only streams have, of the SDK's own
        got.append({k: v for k, v in m.items() if k not in ("id", "container")})
    assert got[0] == got[1], [(k, m.get(k), other.get(k)) for m, other in (got, got[::-1]) for k in m if m[k] != other.get(k, ...)]


def again(params, m, user=None):
    messages = params["messages"] + [{"role": "assistant", "content": m.content}] + ([{"role": "user", "content": user}] if user else [])
    return {**params, "messages": messages, **({"container": m.container.id} if m.container else {})}


@row(46)
@both
def pauses(streamed):
    params = ask("pause")
    m = send(params, streamed)
    assert m.stop_reason == "pause_turn", m
    following = send(again(params, m), streamed)
    assert kinds(following) == ["server_tool_use", "bash_code_execution_result", "text"] and following.container.id == m.container.id, following


@row(47)
@both
def mixed(streamed):
    params = ask("mixed", WEATHER)
    m = send(params, streamed)
    assert m.stop_reason == "tool_use" and kinds(m) == ["server_tool_use", "tool_use"], m
    following = send(again(params, m, [{"type": "tool_result", "tool_use_id": m.content[1].id, "content": "rain"}]), streamed)
    assert kinds(following) == ["bash_code_execution_result", "text"] and following.content[0].tool_use_id == m.content[0].id, following


def run(model, tools, streamed, **more):
    """Has the SDK run a conversation with a tool of its own, to its end."""
    asked = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Tells the weather."""
        asked.append(city)
        return city + ": rain"

    turns = talker.beta.messages.tool_runner(**{**ask(model), "tools": [*tools, weather], "stream": streamed, **more})
    last = None
    for turn in turns:
        last = turn.get_final_message() if streamed else turn
    assert last.stop_reason == "end_turn", last
    return asked, last


@row(48)
@both
def runner(streamed):
    asked, last = run("runner", [CODE], streamed)
    assert asked == ["Riga", "Oslo"] and last.content[1].content.stdout == "kept\n", (asked, last)


@row("thread")
@both
def threads(streamed):
    # Newer versions send new messages only, and all of them where there are no threads.
    for model in ("threads", "chat/threads"):
        asked, _ = run(model, [], streamed)
        assert asked == ["Riga"], (model, asked)


@row("chat")
@both
def chat(streamed):
    asked, last = run("chat/runner", [{**CODE, "defer_loading": True}], streamed,
                      context_management={"edits": [{"type": "clear_tool_uses_20250919"}]})
    assert asked == ["Riga", "Oslo"] and last.content[1].content.stdout == "kept\n", (asked, last)


@row("models")
def models():
    ids = [m.id for m in talker.models.list(limit=3)]
    for name in ("runner", "chat/runner"):
        assert name in ids, ids
        m = talker.models.retrieve(name)
        assert m.id == name and m.type == "model" and m.created_at, m
    assert len(set(ids)) == len(ids), ids
    fails(lambda: talker.models.retrieve("chat/none"), anthropic.NotFoundError)
