"""What a worker says in its sessions, heard by a server that does what no real one does on purpose."""

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from conftest import LONG
from steadfast import Context, InvalidRequest, PermanentError, RetryAfter, Worker
from steadfast.v1 import workers_pb2 as pb
from steadfast.v1.workers_pb2_grpc import WorkersServicer, add_WorkersServicer_to_server


#: That the server has let a worker in.
PROOF = b"you were here"


class Session:
    """One stream: what the worker said, and what it is told."""

    def __init__(self, said: Iterator[pb.FromWorker], lease_ms: int, limits: dict[str, Any]) -> None:
        self._told: queue.Queue[pb.ToWorker | None] = queue.Queue()
        self._heard: queue.Queue[pb.FromWorker] = queue.Queue()
        self.hello = next(said).hello
        self.tell(welcome=pb.Welcome(lease_ms=lease_ms, beat_ms=50, proof=PROOF, **limits))
        self.beats = True
        threading.Thread(target=self._listen, args=(said,), daemon=True).start()

    def _listen(self, said: Iterator[pb.FromWorker]) -> None:
        try:
            for message in said:
                if not message.HasField("beat"):
                    self._heard.put(message)
                elif self.beats:
                    self.tell(beat=message.beat)
        except Exception:
            # The worker is gone, or the session was dropped.
            pass
        self._told.put(None)

    def tell(self, **kind: Any) -> None:
        self._told.put(pb.ToWorker(**kind))

    def assign(self, token: int, call: str, input: Any = None, **more: Any) -> pb.AttemptRef:
        ref = pb.AttemptRef(job_id="job", token=token, attempt=token, step_name="go", proof=bytes([token]))
        called = pb.Call(name=call, input_json=json.dumps(input))
        self.tell(assignment=pb.Assignment(attempt=ref, call=called, **more))
        return ref

    def hear(self, kind: str) -> Any:
        """The next message, which is of that kind."""
        message = self._heard.get(timeout=LONG)
        assert message.WhichOneof("kind") == kind, message
        return getattr(message, kind)

    def acknowledge(self, ref: pb.AttemptRef) -> None:
        self.tell(acknowledgement=pb.Acknowledgement(attempt=ref, counted=True))

    def drop(self) -> None:
        self._told.put(None)

    def answers(self) -> Iterator[pb.ToWorker]:
        while (message := self._told.get()) is not None:
            yield message


class Strange(WorkersServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        self.sessions: queue.Queue[Session] = queue.Queue()
        self.refusal: Any = None
        self.lease_ms = 60_000
        self.limits: dict[str, Any] = {}
        #: Of logs, in order; and what of them the server has.
        self.pieces: queue.Queue[pb.LogChunk] = queue.Queue()
        self.logs: dict[int, bytes] = {}
        self.takes_logs = threading.Event()
        self.takes_logs.set()

    def SendLog(self, chunk: pb.LogChunk, context: Any) -> pb.LogAck:
        self.takes_logs.wait(LONG)
        assert chunk.worker == "w" and chunk.attempt.proof
        have = self.logs.get(chunk.attempt.token, b"")
        assert chunk.offset <= len(have), "there is a hole"
        self.logs[chunk.attempt.token] = have[: chunk.offset] + chunk.bytes if chunk.bytes else have
        self.pieces.put(chunk)
        return pb.LogAck(length=len(self.logs[chunk.attempt.token]), complete=chunk.last)

    def log(self, token: int) -> bytes:
        """The whole of it."""
        while True:
            chunk = self.pieces.get(timeout=LONG)
            if chunk.attempt.token == token and chunk.last:
                return self.logs[token]

    def Session(self, said: Iterator[pb.FromWorker], context: Any) -> Iterator[pb.ToWorker]:
        if self.refusal is not None:
            context.abort(*self.refusal)
        session = Session(said, self.lease_ms, self.limits)
        self.sessions.put(session)
        yield from session.answers()

    def next(self) -> Session:
        return self.sessions.get(timeout=LONG)


class Place:
    """A strange server, and a worker that believes in it."""

    def __init__(self, strange: Strange, url: str) -> None:
        self.strange = strange
        self.worker = Worker(url, name="w", slots=2, kill_grace=0.05, grace=LONG)
        self._thread = threading.Thread(target=self.worker.run, daemon=True)

    def start(self) -> Session:
        self._thread.start()
        return self.strange.next()

    def has_ended(self) -> bool:
        self._thread.join(LONG)
        return not self._thread.is_alive()


@pytest.fixture
def place() -> Iterator[Place]:
    strange = Strange()
    server = grpc.server(ThreadPoolExecutor(8))
    add_WorkersServicer_to_server(strange, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    place = Place(strange, f"http://127.0.0.1:{port}")
    yield place
    place.worker.stop()
    place.worker.stop()
    server.stop(None)


def test_a_report_is_sent_again_in_every_session_until_it_is_acknowledged(place: Place) -> None:
    calls = []
    place.worker.function("f")(lambda ctx, input: calls.append(ctx.attempt))
    session = place.start()
    assert (session.hello.name, session.hello.slots, list(session.hello.functions)) == ("w", 2, ["f"])
    assert not session.hello.returning and not session.hello.processes
    ref = session.assign(1, "f")
    first = session.hear("report")
    assert first.attempt == ref and first.WhichOneof("outcome") == "succeeded"
    session.drop()
    session = place.strange.next()
    assert session.hello.returning and list(session.hello.holds) == [ref]
    assert session.hear("report") == first
    # Assigned again, it is held already.
    session.assign(1, "f")
    session.drop()
    session = place.strange.next()
    assert session.hear("report") == first
    session.acknowledge(ref)
    session.assign(2, "f")
    assert session.hear("report").attempt.token == 2
    session.drop()
    assert [held.token for held in place.strange.next().hello.holds] == [2]
    assert calls == [1, 2]


def test_a_report_does_not_wait_for_its_log_which_goes_on_where_the_server_has_it(place: Place) -> None:
    @place.worker.function
    def prints(ctx: Context, input: str) -> None:
        ctx.log(input)

    session = place.start()
    place.strange.takes_logs.clear()
    long = "x" * 300_000
    ref = session.assign(1, "prints", long)
    report = session.hear("report")
    assert report.log_follows
    session.acknowledge(ref)
    session.assign(2, "prints", "short")
    assert session.hear("report").attempt.token == 2, "a log that is not taken holds nothing up"
    # The server has some of it, and the stream breaks.
    place.strange.logs[1] = long[:200_000].encode()
    session.drop()
    session = place.strange.next()
    assert [held.token for held in session.hello.holds] == [2]
    place.strange.takes_logs.set()
    assert place.strange.log(1) == f"{long}\n".encode()


def test_what_the_server_allows_in_its_welcome_holds(place: Place) -> None:
    place.strange.limits = {"log_bytes": 2000, "output_bytes": 100}

    @place.worker.function
    def prints(ctx: Context, input: int) -> str:
        ctx.log("x" * input)
        return "y" * input

    session = place.start()
    ref = session.assign(1, "prints", 5000)
    report = session.hear("report")
    assert report.failed.error_kind == "output_too_large" and "100 bytes" in report.failed.error_message
    session.acknowledge(ref)
    log = place.strange.log(1).decode()
    assert len(log.encode()) <= 2000 and "2000 bytes at most" in log


def test_progress_is_said_once_a_second_and_the_last_one_before_the_report(place: Place) -> None:
    @place.worker.function
    def counts(ctx: Context, input: int) -> Any:
        for row in range(input):
            ctx.heartbeat({"row": row})
        return ctx.previous_progress

    session = place.start()
    ref = session.assign(1, "counts", 500, progress_json='{"row": 7}')
    said = []
    while True:
        message = session._heard.get(timeout=LONG)
        if message.HasField("report"):
            break
        assert message.progress.attempt == ref
        said.append(json.loads(message.progress.progress_json)["row"])
    assert len(said) <= 3 and said[-1] == 499, said
    assert json.loads(message.report.succeeded.output_json) == {"row": 7}


@pytest.mark.parametrize(("role", "letter"), [(0, "i"), (1, "f"), (2, "c"), (9, "r9-")])
def test_the_key_of_an_item_is_the_one_that_http_steps_send(place: Place, role: int, letter: str) -> None:
    place.worker.function("key")(lambda ctx, input: ctx.idempotency_key)
    session = place.start()
    ref = pb.AttemptRef(job_id="job", token=5, run=3, step=1, role=role, index=7, attempt=2, step_name="go")  # type: ignore[arg-type]
    session.tell(assignment=pb.Assignment(attempt=ref, call=pb.Call(name="key")))
    assert json.loads(session.hear("report").succeeded.output_json) == f"job-3-go-{letter}7"


def test_what_is_withdrawn_is_stopped_and_never_reported(place: Place) -> None:
    stopped = threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> str:
        if ctx.attempt == 1:
            ctx.wait_cancelled()
            stopped.set()
        return "done"

    session = place.start()
    ref = session.assign(1, "waits")
    session.tell(withdrawal=pb.Withdrawal(attempt=ref))
    assert stopped.wait(LONG)
    session.assign(2, "waits")
    assert session.hear("report").attempt.token == 2


def test_when_no_beat_is_answered_for_a_lease_all_is_cancelled_and_lost(place: Place) -> None:
    place.strange.lease_ms = 400
    stopped = threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> str:
        ctx.wait_cancelled()
        stopped.set()
        return "too late"

    session = place.start()
    # Another session would save what runs.
    place.strange.refusal = (grpc.StatusCode.UNAVAILABLE, "not now")
    session.beats = False
    ref = session.assign(1, "waits")
    assert stopped.wait(LONG)
    place.strange.refusal = None
    session = place.strange.next()
    assert list(session.hello.holds) == [ref]
    report = session.hear("report")
    assert (report.lost.started, report.lost.why) == (True, "the lease ended")


def test_what_the_server_has_given_away_goes_on_for_what_is_left_of_its_lease(place: Place) -> None:
    place.strange.lease_ms = 1000
    begun, stopped = threading.Event(), threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> str:
        begun.set()
        ctx.wait_cancelled()
        stopped.set()
        return "too late"

    session = place.start()
    ref = session.assign(1, "waits")
    assert begun.wait(LONG)
    place.strange.limits = {"not_held": [ref]}
    session.drop()
    session = place.strange.next()
    assert list(session.hello.holds) == [ref]
    # This server answers every beat.
    assert stopped.wait(LONG)
    report = session.hear("report")
    assert (report.lost.started, report.lost.why) == (True, "the lease ended")


def test_more_than_the_slots_waits_its_turn_and_goes_back_when_the_worker_is_drained(place: Place) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> int:
        begun.release()
        go_on.wait(LONG)
        return ctx.token

    session = place.start()
    for token in (1, 2, 3):
        session.assign(token, "waits")
    assert begun.acquire(timeout=LONG) and begun.acquire(timeout=LONG)
    session.tell(drain=pb.Drain())
    assert session.hear("draining").why == "the server asked for it"
    given_back = session.hear("report")
    assert (given_back.attempt.token, given_back.lost.started) == (3, False)
    late = session.assign(4, "waits")
    refused = session.hear("report")
    assert (refused.attempt, refused.lost.started) == (late, False)
    go_on.set()
    ended = [session.hear("report") for _ in range(2)]
    assert sorted(json.loads(report.succeeded.output_json) for report in ended) == [1, 2]
    for report in (given_back, refused, *ended):
        session.acknowledge(report.attempt)
    assert place.has_ended()


def test_a_worker_shows_in_every_session_that_it_is_the_one_that_was_let_in(place: Place) -> None:
    place.worker.function("f")(lambda ctx, input: None)
    session = place.start()
    secret = session.hello.secret
    assert len(secret) == 32 and session.hello.proof == b""
    ref = session.assign(1, "f")
    assert session.hear("report").attempt.proof == ref.proof
    session.drop()
    again = place.strange.next().hello
    assert (again.secret, again.proof) == (secret, PROOF)
    hand = place.worker._hand
    assert hand is not None and repr(secret) not in repr(hand) and repr(PROOF) not in repr(hand)


def test_a_drain_that_the_server_takes_back_is_over_and_confirmed(place: Place) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> int:
        begun.release()
        go_on.wait(LONG)
        return ctx.token

    session = place.start()
    session.assign(1, "waits")
    assert begun.acquire(timeout=LONG)
    # Also one that nobody was draining is confirmed.
    for _ in range(2):
        session.tell(undrain=pb.Undrain())
        session.hear("undrained")
    session.tell(drain=pb.Drain())
    session.hear("draining")
    session.tell(undrain=pb.Undrain())
    session.hear("undrained")
    session.assign(2, "waits")
    assert begun.acquire(timeout=LONG), "it takes new work again"
    session.tell(drain=pb.Drain())
    session.hear("draining")
    # The answer was lost with the session: the server asks again in the next one.
    session.drop()
    session = place.strange.next()
    session.tell(undrain=pb.Undrain())
    while (kind := session._heard.get(timeout=LONG).WhichOneof("kind")) != "undrained":
        assert kind == "draining"
    session.assign(3, "waits")
    go_on.set()
    assert begun.acquire(timeout=LONG), "it takes new work again"


def test_a_worker_that_its_host_told_to_go_goes_whatever_the_server_takes_back(place: Place) -> None:
    go_on = threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> int:
        ctx.heartbeat("begun")
        go_on.wait(LONG)
        return ctx.token

    session = place.start()
    ref = session.assign(1, "waits")
    session.hear("progress")
    session.tell(drain=pb.Drain())
    assert session.hear("draining").why == "the server asked for it"
    place.worker.stop()
    while place.worker._hand is not None and place.worker._hand.draining != "preempted":
        threading.Event().wait(0.01)
    session.tell(undrain=pb.Undrain())
    session.hear("undrained")
    assert session.hear("draining").why == "preempted"
    late = session.assign(2, "waits")
    refused = session.hear("report")
    assert (refused.attempt, refused.lost.started) == (late, False)
    go_on.set()
    for report in (refused, session.hear("report")):
        session.acknowledge(report.attempt)
    assert ref.token == 1 and place.has_ended()


def test_what_waits_for_a_thread_that_does_not_stop_is_handed_back(place: Place) -> None:
    go_on = threading.Event()

    @place.worker.function
    def stubborn(ctx: Context, input: Any) -> str:
        go_on.wait(LONG)
        return "unheard"

    session = place.start()
    for token in (1, 2):
        session.assign(token, "stubborn", timeout_ms=10)
    session.assign(3, "stubborn", timeout_ms=10)
    kinds = [session.hear("report").failed.kind for _ in range(2)]
    assert kinds == [pb.Failed.KIND_TIMED_OUT] * 2
    third = session.hear("report")
    assert (third.attempt.token, third.lost.started) == (3, False)
    assert third.lost.why == "its slot is held by a function that does not stop"
    # What comes while they end does not wait for nothing.
    session.assign(4, "stubborn")
    go_on.set()
    fourth = session.hear("report")
    assert (fourth.attempt.token, fourth.succeeded.output_json) == (4, '"unheard"')


def test_what_waits_for_one_that_is_being_stopped_is_not_handed_back(place: Place) -> None:
    place.worker._kill_grace = LONG
    begun, go_on = threading.Semaphore(0), threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> int:
        begun.release()
        go_on.wait(LONG)
        return ctx.token

    session = place.start()
    first = session.assign(1, "waits")
    session.assign(2, "waits")
    assert begun.acquire(timeout=LONG) and begun.acquire(timeout=LONG)
    session.tell(withdrawal=pb.Withdrawal(attempt=first))
    for token in (3, 4):
        session.assign(token, "waits")
    # It came after the other, so that one has waited as long.
    more = session.hear("report")
    assert (more.attempt.token, more.lost.started) == (4, False)
    assert more.lost.why == "it waited too long for a slot"
    go_on.set()
    assert sorted(session.hear("report").attempt.token for _ in range(2)) == [2, 3]


def test_a_worker_that_has_gone_leaves_no_loop_behind(place: Place) -> None:
    loops, ended = [], []

    async def waits(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    @place.worker.function
    async def leaves(ctx: Context, input: Any) -> None:
        loops.append(asyncio.get_running_loop())
        loops[0].left = asyncio.create_task(waits("left"))  # type: ignore[attr-defined]
        ctx.heartbeat("begun")
        await waits("running")

    session = place.start()
    session.assign(1, "leaves")
    session.hear("progress")
    place.worker.stop()
    place.worker.stop()
    assert place.has_ended()
    assert loops[0].is_closed() and sorted(ended) == ["left", "running"]
    assert "steadfast coroutines" not in [thread.name for thread in threading.enumerate()]


def test_what_runs_is_told_when_its_worker_is_cancelled(place: Place) -> None:
    stopped = threading.Event()

    @place.worker.function
    def waits(ctx: Context, input: Any) -> None:
        ctx.heartbeat("begun")
        ctx.wait_cancelled()
        stopped.set()

    async def program() -> None:
        serving = asyncio.create_task(place.worker.serve())
        session = await asyncio.to_thread(place.strange.next)
        session.assign(1, "waits")
        await asyncio.to_thread(session.hear, "progress")
        serving.cancel()
        # Sooner than a session that has fallen silent ends.
        done, _ = await asyncio.wait([serving], timeout=LONG / 2)
        assert done

    asyncio.run(program())
    assert stopped.wait(LONG)


def test_a_coroutine_that_blocks_does_not_keep_a_worker_from_going(place: Place) -> None:
    go_on = threading.Event()

    @place.worker.function
    async def blocks(ctx: Context, input: Any) -> None:
        ctx.heartbeat("begun")
        go_on.wait(LONG)

    session = place.start()
    session.assign(1, "blocks")
    session.hear("progress")
    place.worker.stop()
    place.worker.stop()
    assert place.has_ended()
    left = [thread for thread in threading.enumerate() if thread.name == "steadfast coroutines"]
    go_on.set()
    for thread in left:
        thread.join(LONG)
        assert not thread.is_alive()
    assert len(left) == 1


class NoSeconds(RetryAfter):
    def __init__(self) -> None:
        pass


class NoText(PermanentError):
    def __str__(self) -> str:
        raise KeyError("text")


@pytest.mark.parametrize("how", ["thread", "coroutine"])
@pytest.mark.parametrize(("error", "why"), [(NoSeconds, "no attribute 'seconds'"), (NoText, "KeyError: 'text'")])
def test_what_cannot_be_reported_as_it_was_raised_is_a_failure(
    place: Place, how: str, error: type[Exception], why: str
) -> None:
    @place.worker.function
    def thread(ctx: Context, input: Any) -> None:
        raise error()

    @place.worker.function
    async def coroutine(ctx: Context, input: Any) -> None:
        raise error()

    session = place.start()
    # More than there are slots: none is lost.
    for token in (1, 2, 3):
        session.assign(token, how)
        while not (message := session._heard.get(timeout=LONG)).HasField("report"):
            assert message.HasField("output")
        failed = message.report.failed
        assert (failed.kind, failed.error_kind) == (pb.Failed.KIND_HANDLER_FAILED, error.__name__)
        assert failed.permanent == issubclass(error, PermanentError)
        assert "cannot be reported" in failed.error_message and why in failed.error_message


@pytest.mark.parametrize(
    ("assignment", "kind"),
    [
        (pb.Assignment(impossible="no output of fetch"), "impossible"),
        (pb.Assignment(run="true"), "unsupported"),
        (pb.Assignment(call=pb.Call(name="other")), "unsupported"),
        (pb.Assignment(call=pb.Call(name="f", input_json="{")), "assignment_refused"),
    ],
)
def test_what_cannot_be_run_is_refused_for_good(place: Place, assignment: pb.Assignment, kind: str) -> None:
    place.worker.function("f")(lambda ctx, input: None)
    session = place.start()
    assignment.attempt.CopyFrom(pb.AttemptRef(job_id="job", token=1))
    session.tell(assignment=assignment)
    failed = session.hear("report").failed
    assert (failed.permanent, failed.error_kind) == (True, kind)


def test_a_worker_that_is_not_let_in_says_why(place: Place) -> None:
    place.worker.function("f")(lambda ctx, input: None)
    place.strange.refusal = (grpc.StatusCode.INVALID_ARGUMENT, "that is not a name for a worker")
    with pytest.raises(InvalidRequest, match="not a name"):
        place.worker.run()
