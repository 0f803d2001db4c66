"""What is generated is as it would be generated now, and README's examples work as pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from berth import _retry, _sse, _wire, errors, types

ROOT = Path(__file__).parent.parent


def test_sync_is_made_of_async() -> None:
    subprocess.run([sys.executable, ROOT / "dev" / "make_sync.py", "--check"], check=True)


def test_types_are_those_of_the_daemon() -> None:
    document = os.environ["BERTH_TEST_OPENAPI"]
    subprocess.run([sys.executable, ROOT / "dev" / "make_types.py", "--check", document], check=True)


EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_readme(number: int, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("city,degrees\nOslo,4\nLima,19\n")
    r = subprocess.run([sys.executable, "-c", EXAMPLES[number]], cwd=tmp_path, text=True, capture_output=True,
                       timeout=120)
    assert r.returncode == 0, f"{EXAMPLES[number]}\n{r.stdout}{r.stderr}"
    if "chart.png" in EXAMPLES[number]:
        assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_events_in_pieces() -> None:
    text = b': beat\n\nid: 1-0\nevent: stdout\ndata: {"a":\ndata: "\xc3\xa4"}\n\ndata: {"b": 2}\r\n\r\ndata: {"never": 1}'
    for size in range(1, len(text)):
        p = _sse.Parser()
        events = [e for i in range(0, len(text), size) for e in p.feed(text[i:i + size])]
        assert [(e.id, e.data) for e in events] == [("1-0", {"a": "ä"}), ("1-0", {"b": 2})]


def test_decoding_ignores_what_a_newer_daemon_adds() -> None:
    port = _wire.decode(types.Port, {"port": 1, "address": "x", "pid": 2, "new": {"x": 1}})
    assert (port.port, port.program) == (1, None)
    for text, want in (("2026-11-20T22:47:56Z", 0), ("2026-11-20T22:47:56.4Z", 400_000),
                       ("2026-11-20T22:47:56.123456789+00:00", 123_456)):
        assert _wire.parse_time(text).microsecond == want
        assert _wire.format_time(_wire.parse_time(text)) == f"2026-11-20T22:47:56.{want:06}Z"


def test_when_a_request_is_repeated() -> None:
    def first(e: errors.BerthError, *, repeat: bool, wait: float = 10) -> bool:
        return _retry.Retry(wait, repeat=repeat, met=True).delay(e) is not None

    refused, broke = errors.ConnectionFailedError("", sent=False), errors.ConnectionFailedError("", sent=True)
    assert first(refused, repeat=False) and first(broke, repeat=True) and not first(broke, repeat=False)
    assert not first(refused, repeat=True, wait=0)
    busy = errors.TooManyRequestsError("", retry_after=2)
    assert _retry.Retry(10, repeat=False, met=True).delay(busy) == 2
    assert not first(busy, repeat=True, wait=1) and not first(errors.TooManyRequestsError(""), repeat=True)
    busy.should_retry = False
    assert not first(busy, repeat=True)
    away = errors.UnavailableError("", retry_after=1)
    assert first(away, repeat=True) and not first(away, repeat=False)
    assert not first(errors.InternalError(""), repeat=True)
