"""Errors of the API. Each code of the API has a class, so that a program can catch what it can handle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

__all__ = [
    "AlreadyExistsError", "BerthError", "CanceledError", "ConflictError", "ConnectionFailedError",
    "DeadlineExceededError", "ExpiredError", "InternalError", "InvalidArgumentError", "MethodNotAllowedError",
    "NotFoundError", "PermissionDeniedError", "QuotaExceededError", "TooLargeError", "TooManyRequestsError",
    "UnauthenticatedError", "UnavailableError", "UnsupportedError",
]


class BerthError(Exception):
    """What the daemon answers a request with that it does not do, or that no daemon answered.

    A command that fails is no error: it is a result with its return code.
    """

    code: str = "internal"
    """The API's code, such as `not_found`. Each has a class of its own."""
    hint: str = ""
    """What to do about it. Empty where the message says that, too."""

    def __init__(self, message: str, *, code: str = "", status: int = 0, hint: str = "", item: str = "",
                 request_id: str = "", retry_after: float | None = None, should_retry: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.status = status
        """HTTP status; 0 if there was no answer."""
        self.hint = hint or self.hint
        self.item = item
        """What the error is about: an ID, a field of the request, or a path in the container."""
        self.request_id = request_id
        """Names the request in the daemon's log."""
        self.retry_after = retry_after
        """Seconds after which trying again makes sense, if the daemon said so."""
        self.should_retry = should_retry
        """False if the daemon said that waiting is not worth while."""

    def __str__(self) -> str:
        text = self.message
        if self.hint and self.hint not in text:
            text += f"; {self.hint}"
        if self.code == "internal" and self.request_id:
            text += f" (request {self.request_id})"
        return text


class InvalidArgumentError(BerthError):
    """The request is wrong and will stay wrong; `item` names the field."""

    code = "invalid_argument"


class UnauthenticatedError(BerthError):
    """There is no API key, or the daemon does not know it."""

    code = "unauthenticated"
    hint = "set BERTH_API_KEY, or pass key= to the client"


class PermissionDeniedError(BerthError):
    """The key may not do this, or the user of the container may not."""

    code = "permission_denied"


class NotFoundError(BerthError):
    """There is no such item, or it is another owner's."""

    code = "not_found"


class MethodNotAllowedError(BerthError):
    """The path does not take this HTTP method: the daemon has another version than this package."""

    code = "method_not_allowed"


class AlreadyExistsError(BerthError):
    """The name is taken."""

    code = "already_exists"


class ConflictError(BerthError):
    """The item is in a state that forbids this, or an idempotency key was used for another request."""

    code = "conflict"


class ExpiredError(BerthError):
    """The item was there, and its time is over."""

    code = "expired"


class TooLargeError(BerthError):
    """Something is above a limit of its size."""

    code = "too_large"


class TooManyRequestsError(BerthError):
    """A limit of rate or number was reached; `retry_after` says when to try again."""

    code = "too_many_requests"


class QuotaExceededError(BerthError):
    """The disk or a quota of storage is full; free something first."""

    code = "quota_exceeded"


class DeadlineExceededError(BerthError):
    """It took longer than its time limit."""

    code = "deadline_exceeded"


class CanceledError(BerthError):
    """It was canceled."""

    code = "canceled"


class UnavailableError(BerthError):
    """A part of the daemon does not answer now."""

    code = "unavailable"


class ConnectionFailedError(UnavailableError):
    """No daemon answers at the URL, or the connection broke and the request could not be repeated."""

    hint = "start it with `berth serve`, or name a running one with url= or BERTH_URL"

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the daemon may have got the request, and may have done its work."""
        if sent:
            self.hint = "the daemon may have done what was asked for; look before you repeat it"


class UnsupportedError(BerthError):
    """This daemon, host or image cannot do it."""

    code = "unsupported"


class InternalError(BerthError):
    """A fault of the daemon's own; its log has the cause under `request_id`."""

    code = "internal"


_CLASSES: dict[str, type[BerthError]] = {
    c.code: c for c in (
        InvalidArgumentError, UnauthenticatedError, PermissionDeniedError, NotFoundError, MethodNotAllowedError,
        AlreadyExistsError, ConflictError, ExpiredError, TooLargeError, TooManyRequestsError, QuotaExceededError,
        DeadlineExceededError, CanceledError, UnavailableError, UnsupportedError, InternalError)
}

# For answers without a code: those of a proxy, and the Files API, whose errors have a type in its place.
_BY_STATUS = {
    400: "invalid_argument", 401: "unauthenticated", 403: "permission_denied", 404: "not_found",
    405: "method_not_allowed", 409: "conflict", 410: "expired", 413: "too_large", 415: "invalid_argument",
    416: "invalid_argument", 426: "invalid_argument", 429: "too_many_requests", 431: "too_large", 499: "canceled",
    501: "unsupported", 502: "unavailable", 503: "unavailable", 504: "deadline_exceeded", 507: "quota_exceeded",
}


def from_json(error: Mapping[str, Any], *, status: int = 0, request_id: str = "", retry_after: float | None = None,
              should_retry: bool = True) -> BerthError:
    """Makes an error of the object that the API sends, in an answer or in an event of a stream."""
    code = str(error.get("code") or _BY_STATUS.get(status, "internal"))
    after = error.get("retry_after_seconds", retry_after)
    return _CLASSES.get(code, BerthError)(
        str(error.get("message") or code), code=code, status=status, hint=str(error.get("hint") or ""),
        item=str(error.get("item") or ""), request_id=request_id, retry_after=after, should_retry=should_retry)


def from_answer(url: str, status: int, headers: Mapping[str, str], content: bytes) -> BerthError:
    """Makes an error of an answer that is no success."""
    try:
        answer = json.loads(content)
        error = cast("dict[str, Any]", answer["error"])
        request_id = str(answer.get("request_id") or headers.get("request-id", ""))
        known = bool(error.get("message"))
    except (ValueError, KeyError, TypeError, AttributeError):
        error, request_id, known = {}, headers.get("request-id", ""), False
    if not known:
        error = {"message": f"{url} answered with the status {status}; is it a berth daemon?"}
    after = headers.get("retry-after", "")
    return from_json(error, status=status, request_id=request_id,
                     retry_after=float(after) if after.isdigit() else None,
                     should_retry=headers.get("x-should-retry") != "false")
