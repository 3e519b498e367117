"""Functions in a worker of Python, over the real protocol."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import HERE, LONG, Server
from steadfast import Client, JobStatus, Worker, cluster_pb2
from steadfast.connection import pause
from steadfast.lease import Lease
from steadfast.session import longest_pause

FUNCTIONS = HERE / "functions.py"


@pytest.fixture(scope="module")
def here(server: Server) -> Iterator[Server]:
    worker = server.python_worker(FUNCTIONS, "py")
    yield server
    worker.end()


def submit(client: Client, folder: Path, call: str, input: Any, **step: Any) -> str:
    step = {"call": call, "input": input, "retry": {"initial_delay": "10ms", "max_attempts": 3}, **step}
    file = folder / "job.json"
    file.write_text(json.dumps({"name": call, "steps": {"go": step}}))
    return client.submit_file(file)


def end(client: Client, folder: Path, call: str, input: Any, **step: Any) -> JobStatus:
    return client.wait(submit(client, folder, call, input, **step), LONG)


def test_functions_get_their_input_and_their_output_comes_back(
    here: Server, client: Client, tmp_path: Path
) -> None:
    status = end(client, tmp_path, "double", {"number": 21})
    assert status.output == {"number": 42, "item": None, "step": "go", "attempt": 1}
    assert client.logs(status.job_id) == "doubling 21\n"
    assert status.attempts[0].worker_id == "py"
    many = end(client, tmp_path, "double", {"number": "{{ item }}"}, for_each={"range": 50})
    assert many.details is not None
    items = many.details["runs"][0]["steps"]["go"]["items"]
    assert [item["output"]["number"] for item in items] == [2 * n for n in range(50)]
    assert items[7]["output"]["item"] == 7


def test_a_log_that_grows_too_long_says_what_was_left_out(here: Server, client: Client, tmp_path: Path) -> None:
    log = client.logs(end(client, tmp_path, "wordy", None).job_id)
    assert len(log.encode()) == 4 << 20 and log.endswith(f"may have {4 << 20} bytes at most …\n")


def test_a_key_is_the_items_and_not_the_attempts(here: Server, client: Client, tmp_path: Path) -> None:
    status = end(client, tmp_path, "key", None, for_each={"range": 2})
    assert status.details is not None
    items = status.details["runs"][0]["steps"]["go"]["items"]
    for index, item in enumerate(items):
        assert item["output"] == [f"{status.job_id}-0-go-i{index}"] * 2


def test_the_size_of_a_text_is_its_own_in_any_language(here: Server, client: Client, tmp_path: Path) -> None:
    assert end(client, tmp_path, "repeat", {"text": "\u5b57"}).output == "\u5b57" * 300_000


def test_coroutines_run_side_by_side(here: Server, client: Client, tmp_path: Path) -> None:
    status = end(client, tmp_path, "later", 0.01, for_each={"range": 8})
    assert status.has_succeeded and status.output == "later on 1"


@pytest.mark.parametrize(
    ("how", "state", "failures", "error"),
    [
        ("raise", "succeeded", 1, "the handler reported failure: KeyError: 'who?'"),
        ("exit", "succeeded", 1, "the handler reported failure: SystemExit: 3"),
        ("retry_after", "succeeded", 1, "the handler reported failure: try again after 0.05 s"),
        ("defer", "succeeded", 0, "the handler reported failure: deferred for 0.05 s"),
        ("permanent", "failed", 1, "the handler reported failure: never again"),
        ("not_json", "succeeded", 1, "not completed: the result is not JSON"),
        ("half", "succeeded", 1, "not completed: the result is not JSON: 'utf-8' codec"),
        ("large", "succeeded", 1, "not completed: the output is larger than 1048576 bytes"),
    ],
)
def test_how_a_function_fails_is_what_the_engine_is_told(
    here: Server, client: Client, tmp_path: Path, how: str, state: str, failures: int, error: str
) -> None:
    status = end(client, tmp_path, "fail", {"how": how})
    assert (status.state_name, status.failure_count) == (state, failures)
    assert status.attempts[0].error.startswith(error)
    if how == "raise":
        assert status.output == 2
        log = client.logs(status.job_id, attempt=1)
        assert "Traceback" in log and "in fail" in log
    if how == "permanent":
        assert status.reason == "permanent_error"


def test_rules_match_the_class_of_what_a_function_raises(
    here: Server, client: Client, tmp_path: Path
) -> None:
    rules = {"rules": [{"error": "KeyError", "then": "stop"}]}
    status = end(client, tmp_path, "fail", {"how": "raise"}, retry=rules)
    assert (status.reason, status.failure_count) == ("rule_stop", 1)


@pytest.mark.parametrize("call", ["stubborn", "patient"])
@pytest.mark.parametrize("limit", ["timeout", "heartbeat"])
def test_a_function_that_takes_too_long_is_cancelled(
    here: Server, client: Client, tmp_path: Path, call: str, limit: str
) -> None:
    input = {"ready": str(tmp_path / "ready"), "ended": str(tmp_path / "ended")}
    status = end(client, tmp_path, call, input, **{limit: "500ms"})
    assert status.output == "at last"
    assert (status.attempts[0].outcome, status.failure_count) == ("timed_out", 1)
    assert ("heartbeat" in status.attempts[0].error) == (limit == "heartbeat")


@pytest.mark.parametrize("call", ["stubborn", "patient"])
def test_a_function_of_a_cancelled_job_is_told(
    here: Server, client: Client, tmp_path: Path, call: str
) -> None:
    for name in ("ready", "ended"):
        os.mkfifo(tmp_path / name)
    input = {"ready": str(tmp_path / "ready"), "ended": str(tmp_path / "ended")}
    job = submit(client, tmp_path, call, input)
    assert (tmp_path / "ready").read_text() == "ready"
    client.terminate(job)
    assert (tmp_path / "ended").read_text() == "cancelled"
    assert client.wait(job, LONG).state == cluster_pb2.JOB_STATE_KILLED


def test_a_worker_killed_in_a_call_is_a_preemption_and_the_next_attempt_resumes(
    bare_server: Server, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "ready")
    with Client(bare_server.url) as client:
        worker = bare_server.python_worker(FUNCTIONS, "py1")
        input = {"ready": str(tmp_path / "ready")}
        job = submit(client, tmp_path, "resume", input, retry={"max_attempts": 1})
        assert (tmp_path / "ready").read_text() == "ready"
        # A second apart: the last one is said once the first one is a second old.
        progressed = bare_server.event(job, "AttemptProgressed")
        assert progressed["progress"] in [{"row": 0}, {"row": 1}, {"row": 2}]
        worker.kill()
        bare_server.python_worker(FUNCTIONS, "py2")
        status = client.wait(job, LONG)
        assert (status.failure_count, status.preemption_count) == (0, 1)
        assert status.output["attempt"] == 2
        assert status.output["from"] in [{"row": 0}, {"row": 1}, {"row": 2}]
        assert [attempt.worker_id for attempt in status.attempts] == ["py1", "py2"]


def test_a_server_that_is_restarted_costs_no_attempt(bare_server: Server, tmp_path: Path) -> None:
    for name in ("ready", "go"):
        os.mkfifo(tmp_path / name)
    with Client(bare_server.url) as client:
        results: list[Any] = []
        began, go_on = threading.Event(), threading.Event()
        worker = Worker(bare_server.url, name="here", slots=2)

        @worker.function
        def waits(ctx: Any, input: Any) -> int:
            began.set()
            go_on.wait(LONG)
            results.append(ctx.cancelled)
            return int(ctx.attempt)

        running = threading.Thread(target=worker.run)
        running.start()
        job = submit(client, tmp_path, "waits", None)
        assert began.wait(LONG)
        bare_server.kill()
        bare_server.start()
        go_on.set()
        status = client.wait(job, LONG)
        assert (status.output, status.preemption_count, status.failure_count) == (1, 0, 0)
        assert results == [False]
        worker.stop()
        running.join(LONG)
        assert not running.is_alive()


def test_a_function_that_never_stops_costs_others_no_failure(bare_server: Server, tmp_path: Path) -> None:
    go_on = threading.Event()
    stuck = Worker(bare_server.url, name="stuck", slots=1, kill_grace=0.05)
    well = Worker(bare_server.url, name="well", slots=1)
    stuck.function("f")(lambda ctx, input: go_on.wait(LONG))
    well.function("f")(lambda ctx, input: "at last")
    threads = [threading.Thread(target=worker.run) for worker in (stuck, well)]
    with Client(bare_server.url) as client:
        threads[0].start()
        job = submit(client, tmp_path, "f", None, timeout="100ms")
        # The second attempt is given to the slot that seems to be free.
        for status in client.watch(job, LONG):
            if any("does not stop" in attempt.error for attempt in status.attempts):
                break
        threads[1].start()
        status = client.wait(job, LONG)
        assert (status.output, status.failure_count, status.preemption_count) == ("at last", 1, 0)
        assert (status.attempts[0].outcome, status.attempts[-1].worker_id) == ("timed_out", "well")
    go_on.set()
    for worker, thread in zip((stuck, well), threads, strict=True):
        worker.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def test_a_worker_that_is_told_to_go_loses_what_does_not_end_and_costs_no_failure(
    bare_server: Server, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "ready")
    (tmp_path / "ended").touch()
    with Client(bare_server.url) as client:
        worker = bare_server.python_worker(FUNCTIONS, "py1")
        input = {"ready": str(tmp_path / "ready"), "ended": str(tmp_path / "ended")}
        job = submit(client, tmp_path, "patient", input, retry={"max_attempts": 1})
        assert (tmp_path / "ready").read_text() == "ready"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(LONG) == 0
        assert "left" in worker.said()
        bare_server.python_worker(FUNCTIONS, "py2")
        status = client.wait(job, LONG)
        assert (status.output, status.failure_count, status.preemption_count) == ("at last", 0, 1)
        assert status.attempts[0].error == "the worker was lost: preempted"


def test_a_drained_worker_finishes_and_goes(bare_server: Server, tmp_path: Path) -> None:
    with Client(bare_server.url) as client:
        worker = bare_server.python_worker(FUNCTIONS, "py1")
        assert end(client, tmp_path, "double", {"number": 1}).has_succeeded
        json_type = {"Content-Type": "application/json"}
        client._rest.ask("workers/py1/drain", body=b"", headers=json_type)
        assert worker.process.wait(LONG) == 0


def test_a_worker_whose_server_is_gone_cancels_what_it_runs_when_its_lease_ends(
    bare_server: Server, tmp_path: Path
) -> None:
    for name in ("ready", "ended"):
        os.mkfifo(tmp_path / name)
    with Client(bare_server.url) as client:
        worker = bare_server.python_worker(FUNCTIONS, "py1")
        input = {"ready": str(tmp_path / "ready"), "ended": str(tmp_path / "ended")}
        submit(client, tmp_path, "stubborn", input)
        assert (tmp_path / "ready").read_text() == "ready"
        bare_server.kill()
        assert (tmp_path / "ended").read_text() == "cancelled"
        # Or it would wait for the server to take its report.
        worker.kill()


def test_tries_to_reach_the_server_are_never_further_apart_than_a_second_or_a_tenth_of_the_lease() -> None:
    lease = Lease()
    for length, most in [(None, 1.0), (30.0, 1.0), (4.0, 0.4), (0.1, 0.01)]:
        if length is not None:
            lease.welcome(100, length)
        pauses = [pause(tries, longest_pause(lease)) for tries in range(1, 200)]
        assert 0 < min(pauses) and max(pauses) <= most


def test_a_late_answer_does_not_lengthen_the_lease_beyond_what_the_server_gives() -> None:
    lease = Lease()
    assert lease.left(5) is None and not lease.is_over(5)
    lease.welcome(100, 10)
    first, second = lease.beat(102), lease.beat(104)
    assert lease.left(109) == 1
    lease.answered(first)
    assert lease.left(109) == 3
    lease.answered(second)
    for old in (first, second, 0, 99):
        lease.answered(old)
        assert lease.left(109) == 5
    before = lease.beat(105)
    lease.welcome(106, 4)
    lease.answered(before)
    assert lease.left(106) == 4 and lease.is_over(110)


def test_a_worker_says_what_is_wrong_with_how_it_was_made() -> None:
    worker = Worker("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="nothing to do"):
        worker.run()
    worker.function("a")(lambda ctx, input: None)
    with pytest.raises(ValueError, match="already"):
        worker.function("a")(lambda ctx, input: None)
    with pytest.raises(ValueError, match="slot"):
        Worker(slots=0)
