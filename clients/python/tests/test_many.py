"""Many jobs in one stream: each is answered by itself, and none is lost or made twice."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from conftest import LONG, Server
from steadfast import (
    AsyncClient,
    Client,
    Conflict,
    Entrypoint,
    InvalidRequest,
    NotAllowed,
    RetryConfig,
    ServerUnreachable,
    SteadfastError,
    TooLarge,
    bulk,
)
from steadfast.connection import Place
from steadfast.v1 import jobs_pb2 as pb
from steadfast.v1.jobs_pb2_grpc import JobsServicer, add_JobsServicer_to_server

TRUE = Entrypoint.from_command("true")


def echo(number: int) -> Entrypoint:
    return Entrypoint.from_command("sh", "-c", f'echo {number} > "$STEADFAST_OUTPUT"')


def test_many_jobs_are_answered_in_order_and_have_what_was_asked_for(client: Client) -> None:
    jobs = client.submit_many(map(echo, range(50)), "many", retry=RetryConfig(max_retries_failure=7))
    assert [client.result(job, LONG) for job in jobs if not isinstance(job, SteadfastError)] == [*range(50)]
    assert {job.job_id for job in client.list(name="many")} == {*jobs}
    status = client.status(str(jobs[-1]))
    assert (status.name, status.max_retries_failure) == ("many", 7)
    assert client.submit_many([], "none") == []


def test_callables_have_a_result_each(client: Client) -> None:
    jobs = client.submit_many((Entrypoint.from_callable(pow, 2, n) for n in range(3)), "power")
    assert [client.result(str(job), LONG) for job in jobs] == [1, 2, 4]


def test_a_job_that_is_refused_is_told_by_itself_and_the_others_are_accepted(client: Client) -> None:
    taken = client.submit(TRUE, "taken", idempotency_key="many-taken")
    huge = Entrypoint.from_command("true", "x" * (16 << 20))
    nothing = Entrypoint(("",))
    some = [echo(0), echo(1), huge, echo(3), nothing, echo(5)]
    jobs = client.submit_many(
        some, "refused", idempotency_keys=["many-0", "many-taken", *(f"many-{n}" for n in "2345")]
    )
    assert isinstance(jobs[1], Conflict) and taken in str(jobs[1])
    assert isinstance(jobs[2], TooLarge)
    with pytest.raises(InvalidRequest) as raised:
        client.submit(nothing, "refused")
    assert isinstance(jobs[4], InvalidRequest) and str(jobs[4]) == str(raised.value)
    assert [client.result(str(jobs[n]), LONG) for n in (0, 3, 5)] == [0, 3, 5]
    assert len(client.list(name="refused")) == 3


def test_the_same_keys_are_the_same_jobs(client: Client) -> None:
    keys = [f"many-same-{n}" for n in range(20)]
    first = client.submit_many([TRUE] * 20, "same", idempotency_keys=keys)
    assert client.submit_many([TRUE] * 20, "same", idempotency_keys=iter(keys)) == first
    assert client.submit(TRUE, "same", idempotency_key=keys[7]) == first[7]
    assert len({*first}) == len(client.list(name="same")) == 20


def test_what_is_not_one_key_for_each_entrypoint_is_refused_before_anything_is_sent(client: Client) -> None:
    for keys in (["a"], ["a", "b", "c"]):
        with pytest.raises(ValueError):
            client.submit_many([TRUE] * 2, "keys", idempotency_keys=keys)
    with pytest.raises(TypeError, match="a key for each entrypoint"):
        client.submit_many([TRUE], "keys", idempotency_keys="a")
    with pytest.raises(TypeError, match="entrypoint is"):
        client.submit_many([TRUE, ...], "keys")  # type: ignore[list-item]
    assert client.list(name="keys") == []


def test_entrypoints_are_taken_when_there_is_room_for_them(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "IN_ONE_STREAM", 8)
    taken, open_when_taken = 0, []
    heard, hear = [0], bulk.Batch.hear

    def counts(batch: bulk.Batch, told: pb.SubmitJobsResponse) -> None:
        heard[0] += len(told.results)
        hear(batch, told)

    def lazily() -> Iterator[Entrypoint]:
        nonlocal taken
        for _ in range(30):
            taken += 1
            open_when_taken.append(taken - heard[0])
            yield TRUE

    monkeypatch.setattr(bulk.Batch, "hear", counts)
    assert len({*client.submit_many(lazily(), "lazily")}) == 30
    # A stream's worth, and the one that did not fit.
    assert max(open_when_taken) == 9


def test_messages_have_so_many_jobs_and_about_so_many_bytes() -> None:
    place = Place("http://127.0.0.1:1")

    def sizes(contents: list[int]) -> list[int]:
        jobs = [pb.LaunchJobRequest(name="x" * content) for content in contents]
        return [len(message.jobs) for message in bulk.Batch(place, 0, jobs).messages()]

    assert sizes([1] * 600) == [256, 256, 88]
    assert sizes([300 << 10] * 7) == [3, 3, 1]
    assert sizes([1, 15 << 20, 1, 1]) == [1, 1, 2]


MANY = 2000


class Killed:
    """The server dies in the middle of the first stream, with jobs that it has and has not told, and comes back."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server
        self._hear, self._messages = bulk.Batch.hear, bulk.Batch.messages
        # So that no answer is heard before. The async client has one thread: there some are.
        self._lock = threading.RLock()
        self.streams: list[int] = []
        #: Answers of jobs that were there already.
        self.existing = 0
        monkeypatch.setattr(bulk.Batch, "hear", lambda batch, told: self._heard(batch, told))
        monkeypatch.setattr(bulk.Batch, "messages", lambda batch: self._sent(batch))

    def _sent(self, batch: bulk.Batch) -> Iterator[pb.SubmitJobsRequest]:
        self.streams.append(batch._left)
        messages = self._messages(batch)
        return messages if len(self.streams) > 1 else self._until_the_middle(batch, [*messages])

    def _until_the_middle(
        self, batch: bulk.Batch, messages: list[pb.SubmitJobsRequest]
    ) -> Iterator[pb.SubmitJobsRequest]:
        half = len(messages) // 2
        with self._lock:
            yield from messages[:half]
            # More than an answer that is on its way tells.
            with Client(self._server.url) as other:
                while len(other.list(name="survives", limit=MANY)) < MANY - batch._left + 300:
                    pass
            self._server.kill()
            self._server.start()
        yield from messages[half:]

    def _heard(self, batch: bulk.Batch, told: pb.SubmitJobsResponse) -> None:
        with self._lock:
            self.existing += sum(result.existing for result in told.results)
            self._hear(batch, told)


def test_a_server_that_is_killed_and_restarted_loses_nothing_and_makes_nothing_twice(
    bare_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(bare_server, monkeypatch)
    with Client(bare_server.url, patience=LONG) as client:
        jobs = client.submit_many([TRUE] * MANY, "survives")
        assert len(killed.streams) > 1 and killed.existing > 0
        listed = client.list(name="survives", limit=2 * MANY)
    assert len(listed) == MANY and {job.job_id for job in listed} == {*jobs}


def test_the_async_client_loses_nothing_and_makes_nothing_twice_either(
    bare_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Killed(bare_server, monkeypatch)

    async def program() -> None:
        async with AsyncClient(bare_server.url, patience=LONG) as client:
            jobs = await client.submit_many([TRUE] * MANY, "survives")
            assert len(killed.streams) > 1 and killed.existing > 0
            listed = await client.list(name="survives", limit=2 * MANY)
            assert len(listed) == MANY and {job.job_id for job in listed} == {*jobs}

    asyncio.run(program())


def test_the_async_client_submits_many(server: Server) -> None:
    async def program() -> None:
        async with AsyncClient(server.url) as client:
            keys = [f"many-async-{n}" for n in range(4)]
            some = [echo(0), Entrypoint(("",)), echo(2), echo(3)]
            jobs = await client.submit_many(some, "async-many", idempotency_keys=keys)
            assert isinstance(jobs[1], InvalidRequest)
            ids = [job for job in jobs if not isinstance(job, SteadfastError)]
            assert await asyncio.gather(*(client.result(job, LONG) for job in ids)) == [0, 2, 3]
            again = await client.submit_many(
                [*some[:1], *some[2:]], "async-many", idempotency_keys=[keys[0], *keys[2:]]
            )
            assert again == ids

    asyncio.run(program())


def test_without_a_server_or_a_good_token_each_job_has_that_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "IN_ONE_STREAM", 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with Client(url, patience=0.1) as client:
            answers = client.submit_many([TRUE] * 5, "nowhere")
    assert [type(answer) for answer in answers] == [ServerUnreachable] * 5
    assert url in str(answers[4])
    with Client(server.url, token="wrong") as client:
        assert [type(answer) for answer in client.submit_many([TRUE] * 3, "stranger")] == [NotAllowed] * 3


class Strange(JobsServicer):
    """Refuses as it is told to, by the number of the stream and the key of the job."""

    def __init__(self) -> None:
        self.refusals: dict[tuple[int, str], grpc.StatusCode] = {}
        self.always: grpc.StatusCode | None = None
        self.streams: list[list[str]] = []

    def SubmitJobs(self, said: Iterator[pb.SubmitJobsRequest], context: Any) -> Iterator[pb.SubmitJobsResponse]:
        number = len(self.streams)
        self.streams.append([])
        for message in said:
            for job in message.jobs:
                key = job.launch.idempotency_key
                self.streams[-1].append(key)
                result = pb.NewJobResult(job_id=f"job-{key}")
                if code := self.always or self.refusals.get((number, key)):
                    # Also of one that may be a job by now.
                    result.refusal.CopyFrom(pb.Refusal(code=code.value[0], message=f"not now, {key}"))
                yield pb.SubmitJobsResponse(results=[result])


@pytest.fixture
def strange() -> Iterator[tuple[Strange, str]]:
    strange = Strange()
    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        add_JobsServicer_to_server(strange, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield strange, f"http://127.0.0.1:{port}"
        server.stop(None).wait(LONG)


KEYS = ["a", "b", "c", "d", "e"]


def test_what_the_server_cannot_take_now_is_sent_again_with_its_key_and_nothing_else(
    strange: tuple[Strange, str],
) -> None:
    server, url = strange
    server.refusals = {
        (0, "b"): grpc.StatusCode.UNAVAILABLE,
        (0, "c"): grpc.StatusCode.INVALID_ARGUMENT,
        (0, "d"): grpc.StatusCode.RESOURCE_EXHAUSTED,
        (1, "d"): grpc.StatusCode.UNAVAILABLE,
    }
    with Client(url) as client:
        answers = client.submit_many([TRUE] * 5, "again", idempotency_keys=KEYS)
    assert server.streams == [KEYS, ["b", "d"], ["d"]]
    assert [str(answer) for answer in answers] == ["job-a", "job-b", "not now, c", "job-d", "job-e"]
    assert isinstance(answers[2], InvalidRequest)


@pytest.mark.parametrize(
    ("code", "error"),
    [(grpc.StatusCode.UNAVAILABLE, ServerUnreachable), (grpc.StatusCode.RESOURCE_EXHAUSTED, TooLarge)],
)
def test_what_the_server_never_takes_is_told_why_when_patience_ends(
    strange: tuple[Strange, str], code: grpc.StatusCode, error: type[SteadfastError]
) -> None:
    server, url = strange
    server.always = code
    with Client(url, patience=0.1) as client:
        answers = client.submit_many([TRUE] * 2, "never", idempotency_keys=["a", "b"])
    assert len(server.streams) > 1
    assert [type(answer) for answer in answers] == [error] * 2
    assert "not now" in str(answers[0])
