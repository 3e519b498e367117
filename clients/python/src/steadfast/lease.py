"""How long a worker may go on with what it runs.

A lease is counted from when a beat was sent, not from when its answer came: the server counts from when the beat
arrived, which is later, so the worker always stops first.
"""

from __future__ import annotations

import time
from collections import OrderedDict

#: Beats that may be unanswered and still remembered: a lease is much shorter than so many.
REMEMBERED = 1024


def clock() -> float:
    """Seconds, the machine's sleep included where that can be known."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boot) if boot is not None else time.monotonic()


class Lease:
    """Until when the server believes us."""

    def __init__(self) -> None:
        self._length = 0.0
        self._until: float | None = None
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._number = 0

    def welcome(self, hello_sent: float, length: float) -> None:
        """A session was opened: what was promised before is void."""
        self._length = length
        self._sent.clear()
        self._until = hello_sent + length

    @property
    def length(self) -> float:
        """Seconds; 0 before the first session."""
        return self._length

    def beat(self, now: float) -> int:
        """The number of the beat that is about to be sent."""
        if len(self._sent) >= REMEMBERED:
            self._sent.popitem(last=False)
        self._number += 1
        self._sent[self._number] = now
        return self._number

    def answered(self, number: int) -> None:
        sent = self._sent.get(number)
        if sent is None:
            return
        for older in [key for key in self._sent if key <= number]:
            del self._sent[older]
        self._until = max(self._until or 0.0, sent + self._length)

    def left(self, now: float) -> float | None:
        """0 or less: it has ended. None: there never was one."""
        return None if self._until is None else self._until - now

    def is_over(self, now: float) -> bool:
        left = self.left(now)
        return left is not None and left <= 0
