"""What can go wrong, each with a class of its own. All are `SteadfastError`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .words import inert

if TYPE_CHECKING:
    from .status import JobStatus


class SteadfastError(Exception):
    """Something went wrong between this program and a server, or with a job."""


class ServerUnreachable(SteadfastError, ConnectionError):
    """Nobody answers at the server's address, for as long as the client is patient."""


class NotAllowed(SteadfastError, PermissionError):
    """The server wants a token, or another one."""


class NotFound(SteadfastError, LookupError):
    """There is no such job, step or log."""


class InvalidRequest(SteadfastError, ValueError):
    """The server does not accept what it was asked; the message names the field or the line."""


class Conflict(SteadfastError):
    """Not possible as things are: the job has ended, or the idempotency key belongs to another job."""


class TooLarge(SteadfastError):
    """More than a server takes, or than its disk has room for."""


class ServerError(SteadfastError):
    """The server could not do it; its log says why."""


class WaitTimeout(SteadfastError, TimeoutError):
    """The job has not ended in time. It goes on; `status` is what was last heard of it."""

    def __init__(self, message: str, status: JobStatus | None = None) -> None:
        super().__init__(message)
        self.status = status


class NotPicklable(SteadfastError, TypeError):
    """The callable or its arguments cannot be sent to a worker."""


class JobFailed(SteadfastError):
    """The job has ended, and has not succeeded: there is no result. `status` has its attempts."""

    def __init__(self, message: str, status: JobStatus) -> None:
        super().__init__(message)
        self.status = status


class CallFailed(JobFailed):
    """The last attempt's callable has raised."""

    def __init__(
        self, status: JobStatus, error_type: str, message: str, traceback: str | None
    ) -> None:
        super().__init__(message, status)
        #: The class of the exception, by its name.
        self.error_type = error_type
        self.message = message
        #: As the worker's Python printed it.
        self.traceback = traceback

    def __str__(self) -> str:
        where = f"\n\n{self.traceback.rstrip()}" if self.traceback else ""
        text = f"job {self.status.job_id} failed: {self.message}{where}"
        return "\n".join(inert(line) for line in text.split("\n"))


class ResultTooLarge(CallFailed):
    """The callable has returned more than the 1 MiB that a result may have."""


class PermanentError(SteadfastError):
    """Raised by a worker's function: trying again cannot help."""


class RetryAfter(SteadfastError):
    """Raised by a worker's function: failed, and not to be tried again before `seconds` have passed."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"try again after {seconds:g} s")
        self.seconds = _checked(seconds)


class Defer(SteadfastError):
    """Raised by a worker's function: not now, again after `seconds`. Costs no attempt."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"deferred for {seconds:g} s")
        self.seconds = _checked(seconds)


class Cancelled(SteadfastError):
    """Raised by `Context.heartbeat` in a worker's function: nobody waits for the attempt any more."""


def _checked(seconds: float) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a delay is a number of seconds, 0 or more, not {seconds!r}")
    return seconds
