"""Callables and commands through a real server."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

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
    JobStatus,
    RetryConfig,
    WaitTimeout,
    cluster_pb2,
)

QUICK = RetryConfig(max_retries_failure=3, initial_delay=0.01)
QUICK_ONCE = RetryConfig(max_retries_failure=1, initial_delay=0.01)


def raises_twice(word: str, *, end: str) -> str:
    attempt = int(os.environ["STEADFAST_ATTEMPT"])
    print(f"attempt {attempt}")
    if attempt <= 2:
        raise RuntimeError(f"not yet, {word}")
    return word + end


def exits(code: int, hard: bool) -> None:
    if hard:
        os._exit(code)
    sys.exit(code)


def test_a_callable_that_raises_twice_then_returns(client: Client) -> None:
    entrypoint = Entrypoint.from_callable(raises_twice, "hello", end="!")
    job = client.submit(entrypoint, "raises-twice", retry=QUICK)
    assert client.result(job, LONG) == "hello!"
    status = client.status(job)
    assert (status.state, status.failure_count) == (cluster_pb2.JOB_STATE_SUCCEEDED, 2)
    assert [attempt.attempt_id for attempt in status.attempts] == [0, 1, 2]
    assert [attempt.exit_code for attempt in status.attempts] == [1, 1, 0]
    assert status.attempts[0].error == "exit code 1: RuntimeError: not yet, hello"
    assert (status.current_attempt_id, status.error, status.exit_code) == (2, "", 0)
    log = client.logs(job, attempt=1)
    assert log.startswith("attempt 1\n") and "RuntimeError: not yet, hello" in log
    every = client.logs(job, "main")
    assert every.count("== main_0_attempt_") == 3
    explained = client.explain(job)
    assert [decision["verdict"] for decision in explained.decisions] == ["retry", "retry", "complete"]
    assert "RuntimeError: not yet, hello" in str(explained) and "<table>" in explained._repr_html_()


def test_what_a_callable_raises_comes_back_with_its_type_and_traceback(client: Client) -> None:
    class OutOfRows(Exception):
        pass

    def query() -> None:
        raise OutOfRows("no rows\x1b[31m")

    job = client.submit(Entrypoint.from_callable(query), "raises")
    with pytest.raises(CallFailed) as raised:
        client.result(job, LONG)
    error = raised.value
    assert error.error_type == "OutOfRows"
    assert error.message.endswith("OutOfRows: no rows\x1b[31m")
    assert error.traceback is not None and "in query" in error.traceback
    assert "steadfast_run.py" not in error.traceback
    assert error.status.state == cluster_pb2.JOB_STATE_FAILED
    # Shown, it is only text.
    assert "\x1b" not in str(error.status) + str(error.status.chart()) + error.status._repr_html_() + str(error)


@pytest.mark.parametrize("hard", [False, True])
def test_a_callable_that_exits_with_137_has_that_exit_code(client: Client, hard: bool) -> None:
    only = RetryConfig(max_retries_failure=1, initial_delay=0.01, retry_on_exit_codes=[137])
    job = client.submit(Entrypoint.from_callable(exits, 137, hard), "exits", retry=only)
    status = client.wait(job, LONG)
    assert (status.state, status.reason) == (cluster_pb2.JOB_STATE_FAILED, "attempts_exhausted")
    assert [attempt.exit_code for attempt in status.attempts] == [137, 137]
    with pytest.raises(JobFailed, match="exit code 137"):
        client.result(job)


@pytest.mark.parametrize(
    ("retry", "code", "reason", "attempts"),
    [
        (RetryConfig(3, initial_delay=0.01, retry_on_exit_codes=[137, 139]), 2, "exit_code_not_listed", 1),
        (RetryConfig(3, initial_delay=0.01, no_retry_on_exit_codes=[2]), 2, "exit_code_excluded", 1),
        (RetryConfig(1, initial_delay=0.01, no_retry_on_exit_codes=[2]), 3, "attempts_exhausted", 2),
        (
            RetryConfig(3, initial_delay=0.01, retry_on_exit_codes=[2], no_retry_on_exit_codes=[2]),
            2,
            "exit_code_excluded",
            1,
        ),
    ],
)
def test_lists_of_exit_codes_decide(
    client: Client, retry: RetryConfig, code: int, reason: str, attempts: int
) -> None:
    job = client.submit(Entrypoint.from_command("sh", "-c", f"exit {code}"), "codes", retry=retry)
    status = client.wait(job, LONG)
    assert (status.reason, len(status.attempts)) == (reason, attempts)


@pytest.mark.parametrize(
    "value",
    [
        None, 7, "text", [1, {"a": None}], (1, 2), {1: 2}, {3}, Decimal("0.1"), 1 << 80, float("inf"),
        ["\u5b57\U0001f600\0\u2028"], {"\udc80": "\ud83d"},
    ],
)
def test_results_come_back_as_they_were(client: Client, value: object) -> None:
    result = client.result(client.submit(Entrypoint.from_callable(lambda: value), "value"), LONG)
    assert result == value and type(result) is type(value)


def test_a_coroutine_function_is_awaited(client: Client) -> None:
    async def later(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "later"

    assert client.result(client.submit(Entrypoint.from_callable(later, 0.01), "later"), LONG) == "later"


PROGRAM = """
import functools, sys
import cloudpickle
import names
from models import Config
from steadfast import Client, Entrypoint
from training import train

def here(config):
    return names.NAME, config.size

with Client(sys.argv[1]) as client:
    made = [
        Entrypoint.from_callable(train, Config(3)),
        Entrypoint.from_callable(functools.partial(train, Config(4))),
        Entrypoint.from_callable(here, Config(5)),
        Entrypoint.from_callable(Config(6).larger, 1),
    ]
    assert not cloudpickle.list_registry_pickle_by_value()
    jobs = [client.submit(one, "by-value") for one in made]
    results = [client.result(job, 60) for job in jobs]
assert type(results[3]) is Config
print(results[:3], results[3].size)
"""


def test_what_a_callable_uses_of_its_program_goes_along(server: Server, tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text("NAME = 'names'\n")
    (tmp_path / "models.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    size: int\n"
        "    def larger(self, by):\n        return dataclasses.replace(self, size=self.size + by)\n"
    )
    (tmp_path / "training.py").write_text(
        "from models import Config\n"
        "def train(config):\n    return isinstance(config, Config), config.size\n"
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    argv = [sys.executable, str(tmp_path / "program.py"), server.url]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=2 * LONG, env=server.env)
    assert ran.stdout == "[(True, 3), (True, 4), ('names', 5)] 7\n", ran.stderr


def test_commands_have_what_was_asked_for(client: Client) -> None:
    script = 'printf \'{"greeting": "%s", "port": %d}\' "$GREETING" "$STEADFAST_PORT_WEB" > "$STEADFAST_OUTPUT"'
    job = client.submit(
        Entrypoint.from_command(["sh", "-c", script]),
        "command",
        cluster_pb2.ResourceSpec(cpu=0.5, memory="64m"),
        cluster_pb2.EnvironmentConfig(env_vars={"GREETING": "{{ hi }}"}),
        ["web"],
        60,
        timeout=LONG,
    )
    result = client.result(job, LONG)
    assert result["greeting"] == "{{ hi }}" and result["port"] > 0
    details = client.status(job).details
    assert details is not None and details["runs"][0]["steps"]["main"]["state"] == "succeeded"


def test_a_job_that_is_terminated_is_killed_and_stays_so(client: Client) -> None:
    job = client.submit(Entrypoint.from_command("sleep", "1000"), "sleeper", retry=QUICK)
    for status in client.watch(job, LONG):
        if status.attempts:
            break
    with pytest.raises(WaitTimeout) as late:
        client.wait(job, timeout=0.05)
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(WaitTimeout, match="it is running"):
        client.wait(job, timeout=0)
    client.terminate(job)
    assert client.wait(job, LONG).state == cluster_pb2.JOB_STATE_KILLED
    client.terminate(job)
    done = client.submit(Entrypoint.from_command("true"), "done")
    client.wait(done, LONG)
    assert client.wait(done, timeout=0).has_succeeded
    with pytest.raises(Conflict, match="succeeded"):
        client.terminate(done)
    assert job in [summary.job_id for summary in client.list(state="killed", name="sleeper")]


def test_an_attempt_that_cannot_be_is_an_error_and_no_empty_log(client: Client) -> None:
    job = client.submit(Entrypoint.from_command("echo", "hello"), "says", timeout="1m")
    client.wait(job, "1m")
    assert client.logs(job, attempt=1) == client.logs(job, item=0) == "hello\n"
    for wrong in (0, -1):
        with pytest.raises(InvalidRequest, match=f"there is no attempt {wrong}: attempts are counted from 1"):
            client.logs(job, attempt=wrong)
    with pytest.raises(InvalidRequest, match="items are counted from 0"):
        client.logs(job, item=-1)


def test_a_timeout_may_be_a_text(client: Client) -> None:
    job = client.submit(Entrypoint.from_command("sleep", "1000"), "sleeps", timeout="50ms")
    status = client.wait(job, LONG)
    assert (status.attempts[0].outcome, status.attempts[0].state_name) == ("timed_out", "failed")
    with pytest.raises(WaitTimeout, match="within 0.05 s"):
        client.wait(client.submit(Entrypoint.from_command("sleep", "1000"), "sleeps"), "50ms")


def test_what_waits_for_a_retry_is_pending_and_is_paused_resumed_and_retried(client: Client) -> None:
    command = Entrypoint.from_command("sh", "-c", "exit $((STEADFAST_ATTEMPT < 3))")
    job = client.submit(command, "waits", retry=RetryConfig(max_retries_failure=1, initial_delay="1h", max_delay="1h"))
    for status in client.watch(job, LONG):
        if status.retry_available_at_ms:
            break
    assert (status.state, status.attempts[0].state) == (
        cluster_pb2.JOB_STATE_PENDING,
        cluster_pb2.JOB_STATE_FAILED,
    )
    assert status.details is not None and status.details["state"] == "running"
    client.pause(job)
    client.pause(job)
    assert client.status(job).state == cluster_pb2.JOB_STATE_PAUSED
    client.resume(job)
    assert client.status(job).state == cluster_pb2.JOB_STATE_PENDING
    client.terminate(job)
    assert client.wait(job, LONG).state == cluster_pb2.JOB_STATE_KILLED
    with pytest.raises(Conflict):
        client.pause(job)

    failed = client.submit(command, "fails", retry=QUICK_ONCE)
    assert client.wait(failed, LONG).failure_count == 2
    again = client.retry(failed, grant=3, idempotency_key="again")
    assert client.retry(failed, grant=3, idempotency_key="again") == again
    status = client.wait(again, LONG)
    assert status.has_succeeded and status.details is not None
    assert status.details["retried_from"] == failed


def test_the_clusters_defaults_hold_for_what_a_retry_does_not_say(tmp_path: Path, python: Path) -> None:
    config = tmp_path / "steadfast.toml"
    config.write_text(
        "[fluster]\ndefault_max_retries_failure = 2\ndefault_max_retries_preemption = 7\n"
        "default_retry_delay_ms = 1\n"
    )
    server = Server(tmp_path / "data", python, "up", "--config", str(config))
    try:
        with Client(server.url) as client:
            for retry, attempts in [(None, 3), (RetryConfig(), 3), (RetryConfig(max_retries_failure=0), 1)]:
                job = client.submit(Entrypoint.from_command("false"), "defaults", retry=retry)
                status = client.wait(job, LONG)
                assert len(status.attempts) == attempts, retry
                assert (status.max_retries_failure, status.max_retries_preemption) == (attempts - 1, 7)
    finally:
        server.stop()


def test_one_key_is_one_job(client: Client) -> None:
    command = Entrypoint.from_command("true")
    first = client.submit(command, "once", idempotency_key="python-once")
    assert client.submit(command, "once", idempotency_key="python-once") == first
    with pytest.raises(Conflict, match=first):
        client.submit(command, "twice", idempotency_key="python-once")
    assert client.submit(command, "once") != client.submit(command, "once")


def test_a_job_file_takes_the_files_along_that_it_names(client: Client, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "words.txt").write_text("from a file\n")
    (tmp_path / "go.sh").write_text("#!/bin/sh\ncat lib/words.txt\n")
    (tmp_path / "go.sh").chmod(0o755)
    (tmp_path / "secret.txt").write_text("not named, not sent\n")
    job_file = tmp_path / "job.yaml"
    job_file.write_text("name: files\nfiles: [lib/]\nsteps:\n  go: { argv: [./go.sh], files: [go.sh] }\n")
    job = client.submit_file(job_file)
    assert client.wait(job, LONG).has_succeeded
    assert client.logs(job) == "from a file\n"


def test_a_thousand_submissions_from_sixteen_threads_are_a_thousand_jobs(client: Client) -> None:
    command = Entrypoint.from_command("true")
    with ThreadPoolExecutor(16) as threads:
        jobs = list(threads.map(lambda n: client.submit(command, f"many-{n}"), range(1000)))
        assert len(set(jobs)) == 1000
        ends = list(threads.map(lambda job: client.wait(job, LONG), jobs))
    assert {end.state for end in ends} == {cluster_pb2.JOB_STATE_SUCCEEDED}
    assert {end.name for end in ends} == {f"many-{n}" for n in range(1000)}
    listed = client.list(limit=5000)
    assert {*jobs} <= {job.job_id for job in listed}
    assert client.list(limit=1001) == listed[:1001], "more than a page"


BLOCKS_ONCE = Entrypoint.from_command("sh", "-c", "[ $STEADFAST_ATTEMPT -gt 1 ] || exec sleep 1000")


@pytest.mark.parametrize("timeout", [None, LONG])
def test_a_wait_goes_on_when_the_server_is_restarted(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    with Client(own_server.url) as client, ThreadPoolExecutor(1) as thread:
        job = client.submit(BLOCKS_ONCE, "blocks-once")
        watch, waits = client.watch, threading.Event()

        def watched(*args: Any) -> Iterator[JobStatus]:
            for status in watch(*args):
                if status.attempts:
                    waits.set()
                yield status

        # Only to know that the wait has begun.
        monkeypatch.setattr(client, "watch", watched)
        waiting = thread.submit(client.wait, job, timeout)
        assert waits.wait(LONG)
        own_server.kill()
        assert not waiting.done()
        own_server.start()
        status = waiting.result(LONG)
        assert (status.has_succeeded, status.preemption_count) == (True, 1)


def test_a_submission_waits_for_a_server_that_comes_back(own_server: Server) -> None:
    with Client(own_server.url, patience=LONG) as client, ThreadPoolExecutor(1) as thread:
        client.list()
        own_server.kill()
        began = threading.Event()

        def submit() -> str:
            began.set()
            return client.submit(Entrypoint.from_command("true"), "patient", idempotency_key="patient")

        submitting = thread.submit(submit)
        assert began.wait(LONG)
        own_server.start()
        job = submitting.result(LONG)
        assert client.wait(job, LONG).has_succeeded
        assert [summary.job_id for summary in client.list(name="patient")] == [job]


def test_the_async_client_does_the_same(server: Server) -> None:
    async def program() -> None:
        async with AsyncClient(server.url) as client:
            many = [
                client.submit(Entrypoint.from_callable(raises_twice, str(n), end="?"), "async", retry=QUICK)
                for n in range(3)
            ]
            jobs = await asyncio.gather(*many)
            assert await asyncio.gather(*(client.result(job, LONG) for job in jobs)) == ["0?", "1?", "2?"]
            status = await client.status(jobs[0])
            assert status.failure_count == 2
            assert "attempt 1" in await client.logs(jobs[0], attempt=1)
            assert (await client.log_files(jobs[0]))[0].attempt == 1
            [output] = await client.outputs(jobs[0])
            assert (output.item, output.output["json"]) == (0, "0?")
            assert len((await client.explain(jobs[0])).decisions) == 3
            assert jobs[0] in [job.job_id for job in await client.list(limit=50)]
            sleeper = await client.submit(Entrypoint.from_command("sleep", "1000"), "sleeper")
            with pytest.raises(WaitTimeout):
                await client.wait(sleeper, timeout="50ms")
            await client.pause(sleeper)
            assert (await client.status(sleeper)).state == cluster_pb2.JOB_STATE_PAUSED
            await client.resume(sleeper)
            await client.terminate(sleeper)
            assert (await client.wait(sleeper, LONG)).state == cluster_pb2.JOB_STATE_KILLED

            def wrong() -> None:
                raise KeyError("x")

            failed = await client.submit(Entrypoint.from_callable(wrong), "wrong")
            with pytest.raises(CallFailed) as raised:
                await client.result(failed, LONG)
            assert raised.value.error_type == "KeyError"
            again = await client.retry(failed, grant=1)
            assert (await client.wait(again, LONG)).failure_count == 2
            with pytest.raises(InvalidRequest, match="counted from 1"):
                await client.logs(failed, attempt=0)

    asyncio.run(program())


def test_an_async_wait_goes_on_when_the_server_is_restarted(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        async with AsyncClient(own_server.url) as client:
            job = await client.submit(BLOCKS_ONCE, "blocks-once")
            watch, waits = client.watch, asyncio.Event()

            async def watched(*args: Any) -> AsyncIterator[JobStatus]:
                async for status in watch(*args):
                    if status.attempts:
                        waits.set()
                    yield status

            monkeypatch.setattr(client, "watch", watched)
            waiting = asyncio.create_task(client.wait(job, LONG))
            await asyncio.wait_for(waits.wait(), LONG)
            await asyncio.to_thread(own_server.kill)
            assert not waiting.done()
            await asyncio.to_thread(own_server.start)
            status = await waiting
            assert (status.has_succeeded, status.preemption_count) == (True, 1)

    asyncio.run(program())


def test_a_process_worker_killed_in_a_call_is_a_preemption_and_the_call_resumes(
    bare_server: Server, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)

    def counts(folder: str) -> list[int]:
        """As Fluster's document does: a checkpoint for each attempt."""
        attempt = int(os.environ["FLUSTER_ATTEMPT_ID"])
        if attempt == 0:
            Path(folder, "checkpoint_0").write_text("41")
            Path(folder, "ready").write_text("ready")
            time.sleep(1000)
        return [int(Path(folder, f"checkpoint_{attempt - 1}").read_text()), attempt]

    with Client(bare_server.url) as client:
        worker = bare_server.worker("w1")
        job = client.submit(Entrypoint.from_callable(counts, str(tmp_path)), "counts")
        assert ready.read_text() == "ready"
        worker.kill()
        bare_server.worker("w1")
        assert client.result(job, LONG) == [41, 1]
        status = client.status(job)
        assert (status.failure_count, status.preemption_count) == (0, 1)
        assert [attempt.is_worker_failure for attempt in status.attempts] == [True, False]
