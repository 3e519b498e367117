"""A worker's streams to the server, one after the other, and what is said in them.

The comments of workers.proto are the protocol. What runs does not end with a stream: see `hand`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import grpc
import grpc.aio

from .connection import Place, pause
from .context import Context
from .hand import SERVER_ASKED, Hand, Key, Kept, key_of
from .lease import Lease, clock
from .v1 import workers_pb2 as pb
from .v1.workers_pb2_grpc import WorkersStub

log = logging.getLogger("steadfast.worker")

#: How long a server may take to answer a hello, and to say goodbye.
HELLO_WITHIN = 10.0
GOODBYE = 1.0
BEAT_LEAST = 0.01
PROGRESS_APART = 1.0
LOG_CHUNK = 128 << 10
#: How long a server may take for a piece of a log, and how long it is left alone after it could not take one.
LOG_WITHIN = 30.0
LOG_PAUSE = 1.0
#: Between tries to reach the server, and with a lease no more than a tenth of it: what runs has a lease to be
#: saved in, and a server that is back should see us at once.
LONGEST_PAUSE = 1.0
WILL_NOT_HEAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
)


GIVEN_UP = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)


@dataclass(frozen=True)
class Self:
    """How the worker introduces itself."""

    name: str
    datacenter: str
    labels: Mapping[str, str]
    cpu: float
    memory_bytes: int


@dataclass
class Said:
    """What was said in this stream. A new one begins from nothing."""

    draining: bool = False
    reported: set[Key] = field(default_factory=set)
    progress_at: dict[Key, float] = field(default_factory=dict)


class Over(Exception):
    """The stream has ended, for this reason."""


async def sessions(hand: Hand, place: Place, who: Self) -> None:
    """For ever, until the hand is leaving; raises what no further try can heal."""
    tries, before = 0, ""
    while True:
        answered, why = await _session(hand, place, who)
        if hand.leaving:
            return
        if isinstance(why, grpc.RpcError):
            if why.code() in WILL_NOT_HEAL and not hand.welcomed:
                raise place.error(why)
            reason = f"{why.code().name}: {why.details()}"
        else:
            reason = str(why)
        if reason != before:
            log.warning("%s: %s; trying on", place.url, reason)
            before = reason
        tries = 0 if answered else tries + 1
        await asyncio.sleep(pause(tries + 1, longest_pause(hand.lease)))


def longest_pause(lease: Lease) -> float:
    """Never 0: a server that refuses us is not to be asked without a break."""
    length = lease.length or 10 * LONGEST_PAUSE
    return min(LONGEST_PAUSE, max(length / 10, BEAT_LEAST))


async def _session(hand: Hand, place: Place, who: Self) -> tuple[bool, Exception]:
    """Whether a beat was answered, and why it ended."""
    heard = [False]
    channel = place.channel(grpc.aio)
    try:
        stub: Any = WorkersStub(channel)  # type: ignore[no-untyped-call]
        call = stub.Session(metadata=place.metadata)
        sent = clock()
        await call.write(pb.FromWorker(hello=_hello(hand, who)))
        first = await asyncio.wait_for(call.read(), HELLO_WITHIN)
        if first is grpc.aio.EOF or not first.HasField("welcome"):
            raise Over("the server did not begin with a welcome")
        welcome = first.welcome
        hand.welcomed = True
        hand.proof = welcome.proof
        hand.undrain_unanswered = False
        lease = welcome.lease_ms / 1000
        hand.not_held({key_of(ref) for ref in welcome.not_held})
        hand.lease.welcome(sent, lease)
        hand.tell()
        log.info("connected to %s as %s", place.url, who.name)
        beat = max(welcome.beat_ms / 1000, BEAT_LEAST)
        hand.log_most = welcome.log_bytes or hand.log_most
        hand.output_most = welcome.output_bytes or hand.output_most
        logs = asyncio.ensure_future(_send_logs(hand, stub, place, who.name))
        try:
            await _both(call, _receive(hand, call, lease, heard), _send(hand, call, beat))
        finally:
            logs.cancel()
            await asyncio.gather(logs, return_exceptions=True)
        raise Over("the server ended the session")
    except (grpc.RpcError, Over, asyncio.TimeoutError, asyncio.InvalidStateError) as why:
        if isinstance(why, asyncio.TimeoutError):
            return heard[0], Over("the server has fallen silent")
        return heard[0], why
    finally:
        await channel.close()


async def _both(call: Any, receive: Any, send: Any) -> None:
    """Until the server has ended the stream, or one of them fails."""
    tasks = [asyncio.ensure_future(receive), asyncio.ensure_future(send)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if tasks[0] not in done:
            # We have said goodbye.
            await asyncio.wait_for(tasks[0], GOODBYE)
    finally:
        for task in tasks:
            task.cancel()
        # Before Python 3.12 a wait_for that has its answer already does not hear that it is cancelled: the next
        # one must not wait for the server.
        call.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _hello(hand: Hand, who: Self) -> pb.Hello:
    try:
        ours = version("steadfast-client")
    except PackageNotFoundError:
        ours = "unknown"
    return pb.Hello(
        name=who.name,
        incarnation=hand.incarnation,
        returning=hand.welcomed,
        datacenter=who.datacenter,
        labels=who.labels,
        slots=hand.slots,
        cpu=who.cpu,
        memory_bytes=who.memory_bytes,
        functions=sorted(hand.functions),
        processes=False,
        holds=hand.holds(),
        version=f"python {ours}",
        secret=hand.secret,
        proof=hand.proof,
    )


async def _receive(hand: Hand, call: Any, lease: float, heard: list[bool]) -> None:
    while True:
        # A connection can be dead without either end knowing. There is still time then to save what runs
        # with another one.
        message = await asyncio.wait_for(call.read(), lease * 2 / 3)
        if message is grpc.aio.EOF:
            return
        match message.WhichOneof("kind"):
            case "beat":
                heard[0] = True
                hand.lease.answered(message.beat.number)
            case "assignment":
                hand.assign(message.assignment)
            case "withdrawal":
                hand.withdraw(key_of(message.withdrawal.attempt))
            case "acknowledgement":
                acknowledged = message.acknowledgement
                if not acknowledged.counted:
                    log.info("a report of job %s came too late", acknowledged.attempt.job_id)
                hand.acknowledged(key_of(acknowledged.attempt))
            case "drain":
                hand.drain(SERVER_ASKED)
            case "undrain":
                hand.undrain()
            case _:
                # A newer server may say more than we understand.
                pass


async def _send(hand: Hand, call: Any, beat: float) -> None:
    said = Said()
    for context in _contexts(hand):
        with context._lock:
            context._unsent = context._progress is not None
    next_beat = clock()
    while True:
        # Before looking, so that no change between looking and waiting is missed.
        hand.changed.clear()
        now = clock()
        if now >= next_beat:
            next_beat = now + beat
            await call.write(pb.FromWorker(beat=pb.Beat(number=hand.lease.beat(now))))
        message, look_again = _next(hand, said, now)
        if message is not None:
            await call.write(message)
            continue
        if hand.leaving:
            await call.done_writing()
            return
        wait = max(min(next_beat, look_again) - clock(), 0)
        try:
            await asyncio.wait_for(hand.changed.wait(), wait)
        except asyncio.TimeoutError:
            pass


def _contexts(hand: Hand) -> list[Context]:
    kept = [kept.context for kept in hand.reports.values() if kept.context is not None]
    return kept + [attempt.context for attempt in hand.running.values()]


def _next(hand: Hand, said: Said, now: float) -> tuple[pb.FromWorker | None, float]:
    """What is to be said now, or when to look again."""
    if hand.undrain_unanswered:
        # Before a drain that came later is told.
        hand.undrain_unanswered = False
        said.draining = False
        return pb.FromWorker(undrained=pb.Undrained()), now
    if hand.draining is not None and not said.draining:
        said.draining = True
        return pb.FromWorker(draining=pb.Draining(why=hand.draining)), now
    for key, kept in hand.reports.items():
        if key not in said.reported:
            return _last_words(said, key, kept), now
    if len(said.reported) > 1024 + 2 * len(hand.reports):
        _forget(hand, said)
    look_again = now + 3600
    for key, attempt in hand.running.items():
        context = attempt.context
        if context._unsent:
            due = said.progress_at.get(key, 0.0) + PROGRESS_APART
            if now >= due:
                said.progress_at[key] = now
                return _progress(attempt.ref, context), now
            look_again = min(look_again, due)
    return None, look_again


def _last_words(said: Said, key: Key, kept: Kept) -> pb.FromWorker:
    """How far it was, and then how it ended. What it printed goes another way."""
    if kept.context is not None and kept.context._unsent:
        return _progress(kept.report.attempt, kept.context)
    said.reported.add(key)
    return pb.FromWorker(report=kept.report)


def _progress(ref: pb.AttemptRef, context: Context) -> pb.FromWorker:
    with context._lock:
        context._unsent = False
        text = context._progress or ""
    return pb.FromWorker(progress=pb.Progress(attempt=ref, progress_json=text))


async def _send_logs(hand: Hand, stub: Any, place: Place, name: str) -> None:
    """Piece by piece, apart from the stream: a log delays no beat and no report. The server says how far it has one,
    and there it goes on, also in the next stream."""
    sent: dict[Key, int] = {}
    while True:
        # Before looking, so that no change between looking and waiting is missed.
        hand.printed.clear()
        went = False
        for key, ref, context, begun, last in _logs(hand):
            chunk = _piece(sent.get(key), begun, ref, context, last)
            if chunk is None:
                continue
            chunk.worker = name
            hand.logs_begun.add(key)
            try:
                answer = await stub.SendLog(chunk, metadata=place.metadata, timeout=LOG_WITHIN)
            except grpc.RpcError as why:
                if why.code() in GIVEN_UP:
                    log.warning("the server does not take a log of job %s: %s", ref.job_id, why.details())
                    hand.logs_begun.discard(key)
                    hand.log_sent(key)
                    sent[key] = len(context._log)
                    continue
                await asyncio.sleep(LOG_PAUSE)
                went = True
                break
            went = True
            sent[key] = answer.length
            if last and answer.complete:
                sent.pop(key)
                hand.logs_begun.discard(key)
                hand.log_sent(key)
        if not went:
            await hand.printed.wait()


def _logs(hand: Hand) -> list[tuple[Key, pb.AttemptRef, Context, bool, bool]]:
    """Whose they are, whether the server may have some of it, and whether they have ended."""
    running = [(key, it.ref, it.context, key in hand.logs_begun, False) for key, it in hand.running.items()]
    return [(key, it.ref, it.context, it.begun, True) for key, it in hand.logs.items()] + running


def _piece(
    offset: int | None, begun: bool, ref: pb.AttemptRef, context: Context, last: bool
) -> pb.LogChunk | None:
    if offset is None and begun:
        # A question how much the server has.
        return pb.LogChunk(attempt=ref)
    offset = offset or 0
    with context._lock:
        size = len(context._log)
        piece = bytes(context._log[offset : offset + LOG_CHUNK])
    end = last and offset + len(piece) >= size
    return pb.LogChunk(attempt=ref, offset=offset, bytes=piece, last=end) if piece or end else None


def _forget(hand: Hand, said: Said) -> None:
    """What is not held any more is never asked about again."""
    held = hand.reports.keys() | hand.running.keys()
    said.reported &= held
    said.progress_at = {key: value for key, value in said.progress_at.items() if key in held}
