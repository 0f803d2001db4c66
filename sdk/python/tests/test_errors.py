"""Errors of the API as exceptions."""

from __future__ import annotations

import time

import pytest

import berth
from berth import (
    AlreadyExistsError, BerthError, Client, ConflictError, ConnectionFailedError, InvalidArgumentError,
    MethodNotAllowedError, NotFoundError, PermissionDeniedError, Sandbox, TooLargeError, TooManyRequestsError,
    UnauthenticatedError, UnsupportedError, errors,
)

CODES = ("invalid_argument unauthenticated permission_denied not_found method_not_allowed already_exists conflict "
         "expired too_large too_many_requests quota_exceeded deadline_exceeded canceled unavailable unsupported "
         "internal").split()


def test_each_code_has_a_class() -> None:
    classes = set[type[BerthError]]()
    for code in CODES:
        e = errors.from_json({"code": code, "message": "m", "item": "i", "hint": "do"}, status=418, request_id="req_1")
        assert type(e) is not BerthError and type(e).code == code
        assert (e.code, e.status, e.item, e.request_id, e.hint) == (code, 418, "i", "req_1", "do")
        assert str(e).startswith("m; do")
        classes.add(type(e))
        assert getattr(berth, type(e).__name__) is type(e)
    assert len(classes) == len(CODES)
    later = errors.from_json({"code": "of_a_newer_daemon", "message": "m"})
    assert type(later) is BerthError and later.code == "of_a_newer_daemon"


def test_answers_of_others() -> None:
    e = errors.from_answer("http://x", 502, {}, b"<html>")
    assert isinstance(e, berth.UnavailableError) and "is it a berth daemon?" in str(e)
    for body in (b"", b"[]", b'{"error": "text"}', b'{"error": null}', b"\xff"):
        assert isinstance(errors.from_answer("http://x", 404, {}, body), NotFoundError)
    e = errors.from_answer("http://x", 404, {"request-id": "req_2"},
                           b'{"type": "error", "error": {"type": "not_found_error", "message": "gone"}}')
    assert isinstance(e, NotFoundError) and e.message == "gone" and e.request_id == "req_2"


def test_of_the_daemon(client: Client, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgumentError) as bad:
        sandbox.run("true", timeout_seconds=-1)
    assert bad.value.item == "timeout_seconds" and bad.value.status == 400 and bad.value.request_id
    with Client(key="wrong") as stranger, pytest.raises(UnauthenticatedError) as e:
        stranger.info()
    assert "BERTH_API_KEY" in e.value.hint
    with pytest.raises(NotFoundError):
        Sandbox.get("none", client=client)
    with pytest.raises(InvalidArgumentError):
        Sandbox.get("..", client=client)
    with Sandbox.create(client=client, name="taken"):
        with pytest.raises(AlreadyExistsError):
            Sandbox.create(client=client, name="taken")
    with pytest.raises(PermissionDeniedError, match="network"):
        Sandbox.create(client=client, network="open")
    with pytest.raises(ConflictError):
        sandbox.run("true", generation=99)
    with pytest.raises(UnsupportedError):
        sandbox.code.run("1", language="php")
    with pytest.raises(TooLargeError):
        sandbox.code.run("#" + "x" * (2 << 20))
    with pytest.raises(MethodNotAllowedError):
        client.transport.put("/v1/info")


def test_limits_of_a_key(client: Client) -> None:
    made = client.keys.create("sdk-small", owner="other", quota={"requests_per_second": 0.5, "burst": 1, "sessions": 1})
    with Client(key=made.secret, wait=0) as impatient, Client(key=made.secret) as patient:
        patient.keys.self()
        with pytest.raises(TooManyRequestsError) as e:
            impatient.keys.self()
            impatient.keys.self()
        assert e.value.retry_after and e.value.status == 429
        began = time.monotonic()
        patient.keys.self()
        patient.keys.self()
        assert time.monotonic() - began > 1  # they were sent again when the daemon said
        with pytest.raises(PermissionDeniedError):
            patient.keys.list()
    client.keys.revoke(made.id)


def test_no_daemon() -> None:
    with Client("http://127.0.0.1:9", key="x") as nobody:
        began = time.monotonic()
        with pytest.raises(ConnectionFailedError, match="berth serve"):
            nobody.info()
        assert time.monotonic() - began < 5
    for url in ("ftp://x", "http://", "http://u:p@x", "http://x?y"):
        with pytest.raises(InvalidArgumentError):
            Client(url)
