"""Fluster's own examples, from the wheel in a fresh environment outside of the checkout."""

import re
import subprocess
from pathlib import Path

from conftest import HERE, LONG, Server
from steadfast import Client, cluster_pb2

BLOCKS = re.findall(r"```python\n(.*?)```", (HERE / "fluster_document.md").read_text(), re.S)
PRELUDE = """
import os, signal, sys
from steadfast import Client, Entrypoint, RetryConfig, cluster_pb2

client = Client()
"""
#: What the document leaves out of its calls: `...` becomes the next of these.
JOBS = """
def fails(times):
    if int(os.environ["FLUSTER_ATTEMPT_ID"]) < times:
        sys.exit(3)

def out_of_memory_then_crash():
    attempt = int(os.environ["FLUSTER_ATTEMPT_ID"])
    if attempt == 0:
        os._exit(137)
    if attempt == 1:
        os.kill(os.getpid(), signal.SIGSEGV)

def wrong():
    assert False, "a bug"

left_out = iter([
    (Entrypoint.from_callable(fails, 3), "basic", cluster_pb2.ResourceSpec(cpu=1, memory="512m")),
    (Entrypoint.from_callable(fails, 4), "backoff", cluster_pb2.ResourceSpec(cpu=1, memory="512m")),
    (Entrypoint.from_callable(out_of_memory_then_crash), "crashes", cluster_pb2.ResourceSpec(cpu=1)),
    (Entrypoint.from_callable(wrong), "assertion", cluster_pb2.ResourceSpec(cpu=1)),
    (Entrypoint.from_callable(fails, 3), "not-listed", cluster_pb2.ResourceSpec(cpu=1)),
])
"""


def run(python: Path, server: Server, folder: Path, script: str) -> str:
    """As a program of its own, which knows nothing of the checkout."""
    file = folder / "program.py"
    file.write_text(script)
    env = {**server.env, "STEADFAST_SERVER": server.url}
    ran = subprocess.run(
        [str(python), str(file)], env=env, cwd=folder, capture_output=True, text=True, timeout=LONG
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_demo_notebooks_job_succeeds_after_its_random_failures(
    python: Path, server: Server, tmp_path: Path
) -> None:
    told = run(python, server, tmp_path, PRELUDE + BLOCKS[1])
    # The environment's Python has a seed: the second attempt is the lucky one.
    assert told == "Succeeded after 2 attempts\n"


def test_every_way_to_configure_retries_ends_as_the_document_says(
    python: Path, server: Server, client: Client, tmp_path: Path
) -> None:
    submits = BLOCKS[0].replace("...,", "*next(left_out),").replace("job_id = ", "print(end=' ', *[")
    submits = re.sub(r"^\)$", ")])", submits, flags=re.M)
    listed = "print(client.submit(*next(left_out), retry=RetryConfig(max_retries_failure=3, retry_on_exit_codes=[137])))"
    jobs = run(python, server, tmp_path, PRELUDE + JOBS + submits + listed).split()
    basic, backoff, crashes, assertion, not_listed = (client.wait(job, LONG) for job in jobs)

    assert (basic.state, basic.failure_count) == (cluster_pb2.JOB_STATE_SUCCEEDED, 3)
    assert (basic.max_retries_failure, basic.max_retries_preemption) == (3, 100)

    assert (backoff.state, backoff.failure_count) == (cluster_pb2.JOB_STATE_SUCCEEDED, 4)
    pairs = zip(backoff.attempts, backoff.attempts[1:])
    waited = [after.started_at_ms - before.finished_at_ms for before, after in pairs]
    assert all(w >= d for w, d in zip(waited, [1000, 2000, 4000, 8000], strict=True)), waited
    assert waited[-1] < 16_000

    assert (crashes.state, crashes.failure_count) == (cluster_pb2.JOB_STATE_SUCCEEDED, 2)
    assert [attempt.exit_code for attempt in crashes.attempts] == [137, 139, 0]
    assert (crashes.attempts[0].signal, crashes.attempts[1].signal) == (None, 11)
    states = [attempt.state for attempt in crashes.attempts]
    assert states == [cluster_pb2.JOB_STATE_FAILED] * 2 + [cluster_pb2.JOB_STATE_SUCCEEDED]

    assert (assertion.state, assertion.reason) == (cluster_pb2.JOB_STATE_FAILED, "exit_code_excluded")
    assert (assertion.failure_count, assertion.exit_code) == (1, 1)
    assert assertion.error == "exit code 1: AssertionError: a bug"

    assert (not_listed.state, not_listed.reason) == (cluster_pb2.JOB_STATE_FAILED, "exit_code_not_listed")
