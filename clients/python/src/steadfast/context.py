"""What a function knows of the attempt that it runs for. Used from the function's own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .errors import Cancelled
from .words import as_json

#: As JSON.
LARGEST_PROGRESS = 64 << 10
#: Of what one attempt writes with `Context.log`.
LARGEST_LOG = 4 << 20
#: Of its result, as JSON, unless the server allows another size.
LARGEST_OUTPUT = 1 << 20


@dataclass(eq=False)
class Context:
    """One attempt of a `call` step."""

    job_id: str
    step: str
    #: The function's name, as the step calls it.
    function: str
    #: From 1; more than 1: it was tried before.
    attempt: int
    #: Unique to the attempt: `JOB.TOKEN`. Rises with every attempt of a job.
    token: int
    #: The element of the step's `for_each`, or None.
    item: Any
    item_index: int
    #: The same for every attempt of this item, and of no other: for others, to know that they were asked before.
    idempotency_key: str
    datacenter: str | None
    #: When the attempt has to be over, if the step has a timeout.
    deadline: datetime | None
    #: What an earlier attempt of the item said last with `heartbeat`, or None.
    previous_progress: Any
    #: The job's and the step's `env`.
    env: Mapping[str, str]
    _told: Callable[[], None] = field(repr=False)
    _cancel: threading.Event = field(default_factory=threading.Event, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _heard_at: float = field(default_factory=time.monotonic, repr=False)
    #: As JSON; None: nothing was said.
    _progress: str | None = field(default=None, repr=False)
    _unsent: bool = field(default=False, repr=False)
    _log: bytearray = field(default_factory=bytearray, repr=False)
    _log_full: bool = field(default=False, repr=False)
    #: What the server allows.
    _log_most: int = field(default=LARGEST_LOG, repr=False)
    _output_most: int = field(default=LARGEST_OUTPUT, repr=False)

    @property
    def cancelled(self) -> bool:
        """Nobody waits for the attempt any more: the job was cancelled, its time is up, or the server is gone.

        A thread cannot be stopped from outside, so a function that takes long looks here, or calls
        `heartbeat`. A coroutine is cancelled as well.
        """
        return self._cancel.is_set()

    def wait_cancelled(self, seconds: float | None = None) -> bool:
        """A sleep that ends when the attempt is cancelled: true if it is."""
        return self._cancel.wait(seconds)

    def heartbeat(self, progress: Any = None) -> None:
        """Says that the function is alive and, if told, how far it is: JSON, at most 64 KiB.

        The next attempt finds it in `previous_progress`. May be called as often as one likes: the latest is
        sent, once a second, and at the end. Raises Cancelled if nobody waits for the attempt any more.
        """
        text = None
        if progress is not None:
            text = as_json(progress)
            if len(text.encode()) > LARGEST_PROGRESS:
                raise ValueError(f"progress has at most {LARGEST_PROGRESS} bytes as JSON")
        with self._lock:
            self._heard_at = time.monotonic()
            if text is not None:
                self._progress, self._unsent = text, True
        if text is not None:
            self._told()
        if self.cancelled:
            raise Cancelled(f"attempt {self.attempt} of job {self.job_id} is not wanted any more")

    def log(self, *words: object) -> None:
        """Prints into the attempt's log, which `steadfast logs` and `Client.logs` show."""
        self._write(" ".join(map(str, words)) + "\n")

    def _write(self, text: str) -> None:
        with self._lock:
            if self._log_full:
                return
            written = text.encode("utf-8", "replace")
            left_out = f"… the rest is left out: this log may have {self._log_most} bytes at most …\n".encode()
            room = max(self._log_most - len(left_out) - len(self._log), 0)
            self._log += written[:room]
            if len(written) > room:
                self._log_full = True
                self._log += left_out
        self._told()
