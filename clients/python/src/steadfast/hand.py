"""What a worker has in its hand: what waits for a slot, what runs, and what is not acknowledged yet.

Everything here happens on the session's loop; functions run elsewhere and come back by `call_soon_threadsafe`.
Decides nothing about retries: it reports what happened.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from .context import LARGEST_LOG, LARGEST_OUTPUT, Context
from .lease import Lease, clock
from .outcome import Function, awaited, called, lost, not_completed, said
from .v1 import workers_pb2 as pb

log = logging.getLogger("steadfast.worker")

Key = tuple[str, int]

#: A server gives a few more than there are slots; far more is a server gone wrong.
QUEUED_MOST = 10_000
LEASE_ENDED = "the lease ended"
PREEMPTED = "preempted"
#: Why a worker drains on the server's order, which can be taken back.
SERVER_ASKED = "the server asked for it"
WITHDRAWN = "withdrawn"
TIMED_OUT = "timed out"
SILENT = "silent"
#: What waits longer than this for a slot may find one elsewhere.
LONGEST_WAIT = 1.0
#: The server knows this text, and thinks no worse of the worker for it.
WAITED = "it waited too long for a slot"
#: This one counts: a worker that cannot begin what it is given is put aside for a while.
STUCK = "its slot is held by a function that does not stop"
#: Bytes of logs that wait for the server, in memory: a server that takes none for long has no disk for them either.
LOGS_MOST = 64 << 20


@dataclass(eq=False)
class Waiting:
    """One that has no slot yet."""

    assignment: pb.Assignment
    too_long: bool = False


@dataclass(eq=False)
class Attempt:
    """One that has a slot."""

    ref: pb.AttemptRef
    context: Context
    timeout: float | None
    heartbeat: float | None
    #: Why it was cancelled, if it was.
    cut: str | None = None
    #: The server has it no more: it goes on until then.
    until: float | None = None
    #: How it ended is decided; the function may still be at it.
    settled: bool = False
    timer: asyncio.TimerHandle | None = None
    silence: asyncio.TimerHandle | None = None
    task: asyncio.Task[pb.Report] | None = None


@dataclass(eq=False)
class Kept:
    """A report that the server has not acknowledged, and what is said before it."""

    report: pb.Report
    context: Context | None = None


@dataclass(eq=False)
class Log:
    """What an attempt printed, until the server has it."""

    ref: pb.AttemptRef
    context: Context
    #: The server may have some of it.
    begun: bool = False


@dataclass
class Hand:
    functions: dict[str, Function]
    slots: int
    #: What a function that is told to stop has before its attempt is reported without it.
    kill_grace: float
    loop: asyncio.AbstractEventLoop
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    #: What tells this worker from others that would use its name, and the server's word that it had the name. Of
    #: this life only, as all that it holds: with it the server knows us when we come back. Never printed.
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    proof: bytes = field(default=b"", repr=False)
    lease: Lease = field(default_factory=Lease)
    queue: deque[Waiting] = field(default_factory=deque)
    running: dict[Key, Attempt] = field(default_factory=dict)
    reports: dict[Key, Kept] = field(default_factory=dict)
    #: Of attempts whose reports are acknowledged or not wanted, oldest first.
    logs: dict[Key, Log] = field(default_factory=dict)
    #: Logs of which the server may have some, by attempts that have not come so far.
    logs_begun: set[Key] = field(default_factory=set)
    #: What the server allows an attempt, in bytes.
    log_most: int = LARGEST_LOG
    output_most: int = LARGEST_OUTPUT
    #: Slots in use, also by functions that nobody waits for and that do not stop.
    busy: int = 0
    welcomed: bool = False
    draining: str | None = None
    #: The server has taken a drain back in this session, and is still to be told that we know. It says so again in
    #: every session until it is.
    undrain_unanswered: bool = False
    leaving: bool = False
    #: Something happened: for the session, and for whoever waits until all is over.
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    printed: asyncio.Event = field(default_factory=asyncio.Event)
    coroutines: asyncio.AbstractEventLoop | None = None

    def holds(self) -> list[pb.AttemptRef]:
        """What the server must know that we have."""
        queued = [waiting.assignment.attempt for waiting in self.queue]
        running = [attempt.ref for attempt in self.running.values()]
        return queued + running + [kept.report.attempt for kept in self.reports.values()]

    def assign(self, assignment: pb.Assignment) -> None:
        key = key_of(assignment.attempt)
        queued = any(key_of(waiting.assignment.attempt) == key for waiting in self.queue)
        if queued or key in self.running or key in self.reports:
            return
        refused = self._refused(assignment)
        if refused is not None:
            self._give_back(assignment, failed=refused)
        elif self.draining is not None:
            self._give_back(assignment, why=self.draining)
        elif self.lease.is_over(clock()):
            self._give_back(assignment, why=LEASE_ENDED)
        elif len(self.queue) >= QUEUED_MOST:
            self._give_back(assignment, why="the worker's queue is full")
        else:
            waiting = Waiting(assignment)
            self.queue.append(waiting)
            self._fill()
            if self.queue:
                self.loop.call_later(LONGEST_WAIT, self._waited, waiting)
        self.tell()

    def withdraw(self, key: Key) -> None:
        self.queue = deque(one for one in self.queue if key_of(one.assignment.attempt) != key)
        attempt = self.running.get(key)
        if attempt is not None:
            attempt.cut = None
            self._cut(attempt, WITHDRAWN)
        self.acknowledged(key)

    def acknowledged(self, key: Key) -> None:
        """The report is the server's from now on."""
        kept = self.reports.pop(key, None)
        if kept is not None and kept.context is not None:
            self._keep_log(kept.report.attempt, kept.context)
        self.tell()

    def log_sent(self, key: Key) -> None:
        """The server has all of it, or wants no more."""
        self.logs.pop(key, None)
        self.tell()

    def _keep_log(self, ref: pb.AttemptRef, context: Context) -> None:
        """The end of a log follows the acknowledgement of its report."""
        key = key_of(ref)
        begun = key in self.logs_begun
        self.logs_begun.discard(key)
        if not context._log:
            return
        self.logs[key] = Log(ref, context, begun)
        while sum(len(kept.context._log) for kept in self.logs.values()) > LOGS_MOST:
            log.warning("too many logs wait for the server: the oldest is given up")
            self.logs.pop(next(iter(self.logs)))

    def drain(self, why: str) -> None:
        """Takes nothing new from now on; what waits goes back."""
        # Who is told to go by its own host goes, whatever the server takes back.
        self.draining = why if why == PREEMPTED else self.draining or why
        for waiting in self.queue:
            self._give_back(waiting.assignment, why=why)
        self.queue.clear()
        self.tell()

    def undrain(self) -> None:
        """Takes new work again, if it was the server that wanted none taken. The server is answered either way."""
        if self.draining == SERVER_ASKED:
            self.draining = None
        self.undrain_unanswered = True
        self.tell()

    def preempt(self) -> None:
        """What runs is asked to end."""
        self.drain(PREEMPTED)
        for attempt in list(self.running.values()):
            self._cut(attempt, PREEMPTED)

    def abandon(self) -> None:
        """What has not ended is lost."""
        for attempt in list(self.running.values()):
            self._settle(attempt, lost(True, PREEMPTED))

    def not_held(self, keys: set[Key]) -> None:
        """The server says that it has these no more. They go on for what is left of the lease that they had. To be called before a
        welcome begins another one."""
        left = self.lease.left(clock())
        until = clock() + max(left or 0, 0)
        for key, attempt in self.running.items():
            if key not in keys:
                attempt.until = None
            elif attempt.until is None:
                attempt.until = until
                self.loop.call_later(max(until - clock(), 0), self._given_away, attempt)

    def _given_away(self, attempt: Attempt) -> None:
        if attempt.until is not None and not attempt.settled:
            self._cut(attempt, LEASE_ENDED)
            self._settle(attempt, lost(True, LEASE_ENDED))
            self.tell()

    def lease_ended(self) -> None:
        """Everything is the server's to give to others."""
        stopped = list(self.running.values())
        for attempt in stopped:
            self._cut(attempt, LEASE_ENDED)
            self._settle(attempt, lost(True, LEASE_ENDED))
        for waiting in self.queue:
            self._give_back(waiting.assignment, why=LEASE_ENDED)
        if stopped or self.queue:
            log.warning("the server did not answer for as long as the lease: %d attempts ended", len(stopped))
        self.queue.clear()
        self.tell()

    def is_idle(self) -> bool:
        return not self.queue and not self.running

    def is_over(self) -> bool:
        return self.is_idle() and not self.reports and not self.logs

    def is_drained(self) -> bool:
        return self.draining is not None and self.is_over()

    def tell(self) -> None:
        self.changed.set()
        self.moved.set()
        self.printed.set()

    def tell_from_elsewhere(self) -> None:
        self._elsewhere(self.tell)

    def _elsewhere(self, what: Callable[..., None], *args: Any) -> None:
        """On the session's loop, unless that is over: then nobody waits for it."""
        try:
            self.loop.call_soon_threadsafe(what, *args)
        except RuntimeError:
            pass

    def _refused(self, assignment: pb.Assignment) -> pb.Failed | None:
        action = assignment.WhichOneof("action")
        if action == "impossible":
            return not_completed("impossible", assignment.impossible, permanent=True)
        if action != "call":
            return not_completed("unsupported", "this worker runs functions only", permanent=True)
        if assignment.call.name not in self.functions:
            message = f"this worker has no function {assignment.call.name!r}"
            return not_completed("unsupported", message, permanent=True)
        for text in (assignment.call.input_json, assignment.item_json, assignment.progress_json):
            try:
                _read(text)
            except ValueError as error:
                message = f"what came with the assignment is not JSON: {error}"
                return not_completed("assignment_refused", message, permanent=True)
        return None

    def _give_back(
        self, assignment: pb.Assignment, *, why: str = "", failed: pb.Failed | None = None
    ) -> None:
        """Reports it without having run it."""
        ref = assignment.attempt
        if failed is not None:
            report = pb.Report(attempt=ref, failed=failed)
        else:
            report = pb.Report(attempt=ref, lost=pb.Lost(started=False, why=why))
        self.reports[key_of(ref)] = Kept(report)

    def _fill(self) -> None:
        """Gives free slots to those who have waited longest."""
        while self.busy < self.slots and self.queue:
            self._start(self.queue.popleft().assignment)

    def _waited(self, waiting: Waiting) -> None:
        waiting.too_long = True
        self._hand_back_what_waits()

    def _hand_back_what_waits(self) -> None:
        # Theirs are the slots of those that the server has withdrawn, and that are using up their grace.
        kept = sum(attempt.cut == WITHDRAWN for attempt in self.running.values())
        late = [waiting for waiting in list(self.queue)[kept:] if waiting.too_long]
        why = STUCK if self.busy > len(self.running) else WAITED
        for waiting in late:
            self.queue.remove(waiting)
            self._give_back(waiting.assignment, why=why)
        if late:
            self.tell()

    def _start(self, assignment: pb.Assignment) -> None:
        ref = assignment.attempt
        timeout = assignment.timeout_ms / 1000 if assignment.timeout_ms else None
        now = datetime.now(timezone.utc)
        context = Context(
            job_id=ref.job_id,
            step=ref.step_name,
            function=assignment.call.name,
            attempt=ref.attempt,
            token=ref.token,
            item=_read(assignment.item_json),
            item_index=ref.index,
            idempotency_key=_idempotency_key(ref),
            datacenter=assignment.datacenter or None,
            deadline=None if timeout is None else now + timedelta(seconds=timeout),
            previous_progress=_read(assignment.progress_json),
            env=dict(assignment.env),
            _told=self.tell_from_elsewhere,
            _log_most=min(self.log_most, LARGEST_LOG),
            _output_most=self.output_most,
        )
        heartbeat = assignment.heartbeat_ms / 1000 if assignment.heartbeat_ms else None
        attempt = Attempt(ref, context, timeout, heartbeat)
        if timeout is not None:
            attempt.timer = self.loop.call_later(timeout, self._cut, attempt, TIMED_OUT)
        if heartbeat is not None:
            attempt.silence = self.loop.call_later(heartbeat, self._listen, attempt)
        self.busy += 1
        self.running[key_of(ref)] = attempt
        function = self.functions[assignment.call.name]
        value = _read(assignment.call.input_json)
        if inspect.iscoroutinefunction(function) and self.coroutines is not None:
            self.coroutines.call_soon_threadsafe(self._begin, function, context, value, attempt)
            return
        # One that does not stop must not keep the program from ending.
        name = f"{assignment.call.name} {ref.job_id}"
        arguments = (function, context, value, attempt)
        threading.Thread(target=self._call, args=arguments, name=name, daemon=True).start()

    def _begin(self, function: Function, context: Context, value: Any, attempt: Attempt) -> None:
        """On the loop of coroutines."""
        task = asyncio.get_running_loop().create_task(awaited(function, context, value))
        task.add_done_callback(lambda done: self._elsewhere(self._ended, attempt, said(done)))
        attempt.task = task
        if context.cancelled:
            task.cancel()

    def _call(self, function: Function, context: Context, value: Any, attempt: Attempt) -> None:
        self._elsewhere(self._ended, attempt, called(function, context, value))

    def _ended(self, attempt: Attempt, outcome: pb.Report) -> None:
        """The function has come back."""
        self.busy -= 1
        # Woken after a long stop we may be the first to see that the lease is over.
        if self.lease.is_over(clock()):
            self._cut(attempt, LEASE_ENDED)
        if not attempt.settled:
            self._settle(attempt, outcome)
        self._fill()
        self.tell()

    def _listen(self, attempt: Attempt) -> None:
        """Is it silent for too long?"""
        assert attempt.heartbeat is not None
        left = attempt.context._heard_at + attempt.heartbeat - time.monotonic()
        if left <= 0:
            self._cut(attempt, SILENT)
        else:
            attempt.silence = self.loop.call_later(left, self._listen, attempt)

    def _cut(self, attempt: Attempt, why: str) -> None:
        """The first reason is the reason."""
        if attempt.settled or attempt.cut is not None:
            return
        attempt.cut = why
        attempt.context._cancel.set()
        if attempt.task is not None and self.coroutines is not None:
            self.coroutines.call_soon_threadsafe(attempt.task.cancel)
        if attempt.timer is not None:
            attempt.timer.cancel()
        # When the worker goes, that has a grace of its own.
        if why != PREEMPTED:
            attempt.timer = self.loop.call_later(self.kill_grace, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """It keeps its slot, and nobody knows for how long."""
        self._settle(attempt, lost(True, "it does not stop"))
        self._hand_back_what_waits()

    def _settle(self, attempt: Attempt, outcome: pb.Report) -> None:
        """How it ended is decided, and is to be reported, unless nobody wants to hear."""
        if attempt.settled:
            return
        attempt.settled = True
        for timer in (attempt.timer, attempt.silence):
            if timer is not None:
                timer.cancel()
        self.running.pop(key_of(attempt.ref), None)
        if attempt.cut != WITHDRAWN:
            outcome = _as_cut(attempt, outcome)
            outcome.attempt.CopyFrom(attempt.ref)
            outcome.log_follows = bool(attempt.context._log)
            self.reports[key_of(attempt.ref)] = Kept(outcome, attempt.context)
        else:
            self._keep_log(attempt.ref, attempt.context)
        self.tell()


def _as_cut(attempt: Attempt, outcome: pb.Report) -> pb.Report:
    """What is said of an attempt that was told to stop, whatever its function then did."""
    succeeded = outcome.WhichOneof("outcome") == "succeeded"
    if attempt.cut == LEASE_ENDED:
        return lost(True, LEASE_ENDED)
    # It was asked to end: only a success is its own doing.
    if attempt.cut == PREEMPTED and not succeeded:
        return lost(True, PREEMPTED)
    if attempt.cut == TIMED_OUT:
        return pb.Report(failed=pb.Failed(kind=pb.Failed.KIND_TIMED_OUT))
    if attempt.cut == SILENT:
        ms = round((attempt.heartbeat or 0) * 1000)
        failed = pb.Failed(
            kind=pb.Failed.KIND_TIMED_OUT,
            error_kind="heartbeat",
            error_message=f"it was silent for longer than its heartbeat of {ms} ms",
        )
        return pb.Report(failed=failed)
    return outcome


def key_of(ref: pb.AttemptRef) -> Key:
    return (ref.job_id, ref.token)


def _read(text: str) -> Any:
    return json.loads(text) if text else None


def _idempotency_key(ref: pb.AttemptRef) -> str:
    """The one that an `http` step of the same name would send."""
    roles = {pb.ROLE_ITEM: "i", pb.ROLE_FALLBACK: "f", pb.ROLE_COMPENSATION: "c"}
    # A newer server may have more of them.
    role = roles.get(ref.role, f"r{ref.role}-")
    return f"{ref.job_id}-{ref.run}-{ref.step_name}-{role}{ref.index}"
