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
    client.files.list(extra_query={"beta": "true", "color": "blue"}, extra_headers={"anthropic-beta": "nobody-knows-1999-01-01"})


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
    # How many attempts there were the server counts, and sdk_test.go checks.
    fails(lambda: client.files.retrieve_metadata("file_conflict"), anthropic.ConflictError)
    fails(lambda: client.files.retrieve_metadata("file_broken"), anthropic.InternalServerError)
    start = time.monotonic()
    client.files.retrieve_metadata("file_busy")
    assert time.monotonic() - start >= 1


@row(9)
def metadata():
    f = upload("data.csv", "text/csv", b"a,b\n1,2\n")
    got = f.model_dump(exclude={"id", "created_at"})
    want = {"type": "file", "filename": "data.csv", "mime_type": "text/csv", "size_bytes": 8, "downloadable": False, "expires_at": None}
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
