"""Where the daemon is, and with which key."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import quote, urlsplit

from .errors import InvalidArgumentError, UnauthenticatedError

DEFAULT_URL = "http://127.0.0.1:7117"
KEY_FILE = "/var/lib/berth/api-key"


def find_url(url: str | None) -> str:
    """Returns the daemon's URL: the argument, BERTH_URL, BERTH_HOST, or that of a daemon on this machine."""
    text = url or os.environ.get("BERTH_URL") or os.environ.get("BERTH_HOST") or DEFAULT_URL
    if "://" not in text:
        text = "http://" + text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InvalidArgumentError(f"the URL {text!r} is not one such as {DEFAULT_URL}", item="url")
    return text.rstrip("/")


def find_key(key: str | None) -> str:
    """Returns the API key: the argument, BERTH_API_KEY, or the content of the file of BERTH_API_KEY_FILE.

    Without these it is the key of a daemon on this machine, if this user may read it.
    """
    if key or (key := os.environ.get("BERTH_API_KEY")):
        return key
    named = os.environ.get("BERTH_API_KEY_FILE")
    try:
        return Path(named or KEY_FILE).read_text().strip()
    except OSError as e:
        if named:
            raise UnauthenticatedError(f"the file of BERTH_API_KEY_FILE cannot be read: {e}") from None
        return ""


def trust(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Returns the TLS settings. With a file of CA certificates, only these are trusted."""
    return ssl.create_default_context(cafile=ca_file)


def path(*parts: str) -> str:
    """Joins the parts of a path of the API. Each is escaped, so that no ID can name another endpoint."""
    for p in parts:
        if p in ("", ".", ".."):  # HTTP libraries would resolve these
            raise InvalidArgumentError(f"{p!r} is no ID and no name", item="id")
    return "/v1/" + "/".join(quote(p, safe="") for p in parts)
