"""When a request is sent again. There is no I/O here, so both clients use it."""

from __future__ import annotations

import random
import secrets
import time

from .errors import BerthError, ConnectionFailedError, TooManyRequestsError, UnavailableError

FIRST_DELAY = 0.05  # seconds
LONGEST_DELAY = 2.0  # seconds
FIRST_WAIT = 1.0  # seconds; whether there is a daemon at all is not known before its first answer

# How long the daemon knows a key that begins with `once_` at least. It knows other keys for a day.
ONCE_LIVES = 60.0


def new_key(wait: float) -> str:
    """Makes an idempotency key for a request that is repeated for up to this many seconds."""
    return ("once_" if wait < ONCE_LIVES else "again_") + secrets.token_hex(16)


class Retry:
    """Decides about the repetitions of one request, or of one stream since its last event.

    A refused connection sent nothing, and a 429 did nothing: such a request is always sent again. After a connection
    broke, and after a 503, only a request that may come twice is: one that reads, that leads to the same state, or that
    has an idempotency key.
    """

    def __init__(self, wait: float, *, repeat: bool, met: bool) -> None:
        self.wait = wait
        self.repeat = repeat
        self.met = met
        self.broke = False  # an attempt may have reached the daemon without an answer
        self._began: float | None = None
        self._delay = FIRST_DELAY

    def delay(self, error: BerthError) -> float | None:
        """Returns the seconds to wait before the next attempt, or None if the error is to be raised."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        most = self.wait
        if isinstance(error, ConnectionFailedError):
            self.broke = self.broke or error.sent
            again = self.repeat or not error.sent
            if not self.met:
                most = min(most, FIRST_WAIT)
        elif isinstance(error, TooManyRequestsError):
            again = error.should_retry and error.retry_after is not None
        elif isinstance(error, UnavailableError):
            again = self.repeat and error.should_retry
        else:
            again = False
        pause = self._delay * random.uniform(0.75, 1.25)
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        if error.retry_after is not None:
            pause = max(pause, error.retry_after)
        if not again or now - self._began + pause > most:
            return None
        return pause

    def reset(self) -> None:
        """Says that there was progress: the time starts anew."""
        self._began, self._delay, self.met = None, FIRST_DELAY, True
