"""A job in one call: handed over, waited for, and its result."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from conftest import LONG, Server
from steadfast import (
    AsyncClient,
    CallFailed,
    Client,
    Conflict,
    Entrypoint,
    InvalidRequest,
    JobFailed,
    RetryConfig,
    ServerUnreachable,
    WaitTimeout,
    cluster_pb2,
)
from steadfast.v1 import jobs_pb2 as pb
from steadfast.v1.jobs_pb2_grpc import JobsServicer, add_JobsServicer_to_server

TRUE = Entrypoint.from_command("true")

#: Of a server: `run` of a client of its own.
Run = Callable[..., Any]


def in_a_thread(url: str, *args: Any, patience: float = 10.0, **options: Any) -> Any:
    with Client(url, patience=patience) as client:
        return client.run(*args, **options)


def in_a_loop(url: str, *args: Any, patience: float = 10.0, **options: Any) -> Any:
    async def program() -> Any:
        async with AsyncClient(url, patience=patience) as client:
            return await client.run(*args, **options)

    return asyncio.run(program())


@pytest.fixture(params=[in_a_thread, in_a_loop])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


def test_a_run_returns_what_the_job_returns(server: Server, run: Run) -> None:
    assert run(server.url, Entrypoint.from_callable(divmod, 7, 2), "run", wait_timeout=LONG) == (3, 1)
    says = Entrypoint.from_command("sh", "-c", 'echo "\\"$GREETING\\"" > "$STEADFAST_OUTPUT"')
    assert run(server.url, says, "run", environment={"GREETING": "hello"}) == "hello"
    assert run(server.url, TRUE, "run") is None


def test_a_run_raises_what_the_job_failed_with(server: Server, run: Run) -> None:
    with pytest.raises(CallFailed) as raised:
        run(server.url, Entrypoint.from_callable(int, "x"), "run", retry=RetryConfig(1, initial_delay=0.01))
    assert raised.value.error_type == "ValueError" and raised.value.status.failure_count == 2
    with pytest.raises(JobFailed, match="exit code 3"):
        run(server.url, Entrypoint.from_command("sh", "-c", "exit 3"), "run")


def test_a_run_that_is_refused_is_no_job(server: Server, client: Client, run: Run) -> None:
    with pytest.raises(InvalidRequest, match="retry.max_retries_failure"):
        run(server.url, TRUE, "run-refused", retry=RetryConfig(max_retries_failure=-1))
    assert client.list(name="run-refused") == []


def test_a_key_is_run_once(server: Server, client: Client, run: Run) -> None:
    name = f"run-{run.__name__}"
    when = Entrypoint.from_command("sh", "-c", 'date +%s%N > "$STEADFAST_OUTPUT"')
    first = run(server.url, when, name, idempotency_key=name)
    assert run(server.url, when, name, idempotency_key=name) == first
    [job] = client.list(name=name)
    assert client.submit(when, name, idempotency_key=name) == job.job_id
    with pytest.raises(Conflict, match=job.job_id):
        run(server.url, TRUE, name, idempotency_key=name)


@pytest.mark.parametrize("timeout", [0, "50ms"])
def test_a_run_that_takes_too_long_goes_on_and_is_known(
    server: Server, client: Client, run: Run, timeout: float | str
) -> None:
    with pytest.raises(WaitTimeout) as raised:
        run(server.url, Entrypoint.from_command("sleep", "1000"), "run-sleeps", wait_timeout=timeout)
    status = raised.value.status
    assert status is not None and not client.status(status.job_id).has_ended
    assert f"within {0 if timeout == 0 else 0.05} s" in str(raised.value)
    client.terminate(status.job_id)


@pytest.mark.parametrize("timeout", [None, LONG])
def test_a_run_goes_on_when_the_server_is_restarted(
    own_server: Server, tmp_path: Path, run: Run, timeout: float | None
) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    # Its second attempt ends.
    script = f'[ $STEADFAST_ATTEMPT -gt 1 ] || {{ echo > "{ready}"; exec sleep 1000; }}; echo 42 > "$STEADFAST_OUTPUT"'
    with ThreadPoolExecutor(1) as thread:
        entrypoint = Entrypoint.from_command("sh", "-c", script)
        running = thread.submit(run, own_server.url, entrypoint, "restarted", patience=LONG, wait_timeout=timeout)
        ready.read_text()
        own_server.kill()
        assert not running.done()
        own_server.start()
        assert running.result(LONG) == 42
    with Client(own_server.url) as client:
        [job] = client.list(name="restarted")
        assert client.status(job.job_id).preemption_count == 1


class Strange(JobsServicer):
    """Goes away in the middle of a run."""

    def __init__(self) -> None:
        self.tells_id = False
        self.hangs = False
        self.watches_that_break = 0
        #: What was handed over, and how.
        self.taken: list[tuple[str, pb.LaunchJobRequest]] = []

    def RunJob(self, job: pb.NewJob, context: Any) -> Iterator[pb.RunJobResponse]:
        self.taken.append(("run", job.launch))
        if self.tells_id:
            yield pb.RunJobResponse(job_id="job")
        if self.hangs:
            gone = threading.Event()
            context.add_callback(gone.set)
            gone.wait(LONG)
        context.abort(grpc.StatusCode.UNAVAILABLE, "going")

    def LaunchJob(self, job: pb.LaunchJobRequest, context: Any) -> pb.LaunchJobResponse:
        self.taken.append(("launch", job))
        return pb.LaunchJobResponse(job_id="job")

    def GetJobStatus(self, request: pb.GetJobStatusRequest, context: Any) -> pb.GetJobStatusResponse:
        return pb.GetJobStatusResponse(job=pb.JobStatus(job_id=request.job_id, state=pb.JOB_STATE_RUNNING))

    def WatchJob(self, request: pb.WatchJobRequest, context: Any) -> Iterator[pb.JobStatus]:
        if self.watches_that_break > 0:
            self.watches_that_break -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "still away")
        yield pb.JobStatus(job_id=request.job_id, state=pb.JOB_STATE_SUCCEEDED, output_json="42")


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


def test_a_run_whose_id_was_told_is_not_sent_again_however_long_the_server_is_away(
    strange: tuple[Strange, str], run: Run
) -> None:
    server, url = strange
    server.tells_id, server.watches_that_break = True, 3
    assert run(url, TRUE, "told", patience=0.0) == 42
    assert [how for how, _ in server.taken] == ["run"]


def test_a_run_whose_id_was_not_told_is_sent_again_with_its_key(strange: tuple[Strange, str], run: Run) -> None:
    server, url = strange
    assert run(url, TRUE, "untold") == 42
    [(_, first), (how, second)] = server.taken
    assert how == "launch" and first == second and first.idempotency_key


def test_a_run_that_is_late_is_known_by_its_key(strange: tuple[Strange, str], run: Run) -> None:
    server, url = strange
    server.hangs = True
    with pytest.raises(WaitTimeout) as raised:
        run(url, TRUE, "late", wait_timeout=0.05)
    status = raised.value.status
    assert status is not None and (status.job_id, status.state) == ("job", cluster_pb2.JOB_STATE_RUNNING)


def test_a_run_without_a_server_says_so(run: Run) -> None:
    with pytest.raises(ServerUnreachable):
        run("http://127.0.0.1:1", TRUE, "nowhere", patience=0.1)
