"""What both clients ask, and how they understand the answers. No connection is used here."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle

from .config import RetryConfig
from .durations import Duration, milliseconds
from .entrypoint import Entrypoint
from .errors import CallFailed, JobFailed, ResultTooLarge
from .runner import RAISED
from .status import RESULT_KEY, JobStatus
from .v1 import jobs_pb2 as pb
from .words import inert

#: The step of a launched job.
STEP = "main"
#: Of a log: a traceback stands at its end.
TAIL = 256 << 10


def new_key() -> str:
    """So that a submission whose answer was lost can be sent again.

    It begins with the time: keys that come one after the other lie side by side in the store's index.
    """
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(8)}"


def launch(
    entrypoint: Entrypoint,
    name: str,
    resources: pb.ResourceSpec | None,
    environment: pb.EnvironmentConfig | Mapping[str, str] | None,
    ports: Sequence[str] | None,
    scheduling_timeout_seconds: int,
    retry: RetryConfig | None,
    timeout: Duration | None,
    labels: Mapping[str, str] | None,
    idempotency_key: str | None,
) -> pb.LaunchJobRequest:
    if not isinstance(entrypoint, Entrypoint):
        raise TypeError(
            f"entrypoint is Entrypoint.from_callable(…) or Entrypoint.from_command(…), not {entrypoint!r}"
        )
    if isinstance(ports, str):
        raise TypeError("ports is a list of names")
    if environment is not None and not isinstance(environment, pb.EnvironmentConfig):
        environment = pb.EnvironmentConfig(env_vars=dict(environment))
    request = pb.LaunchJobRequest(
        name=name,
        entrypoint=pb.Entrypoint(command=pb.Command(argv=entrypoint.argv)),
        resources=resources,
        environment=environment,
        ports=ports,
        scheduling_timeout_seconds=scheduling_timeout_seconds,
        labels=labels,
        idempotency_key=idempotency_key or new_key(),
        files=entrypoint.files,
    )
    if timeout is not None:
        request.timeout_ms = milliseconds(timeout, "timeout")
    if retry is not None:
        request.retry.CopyFrom(retry.to_proto())
    return request


def result(status: JobStatus) -> Any:
    """Of a job that has succeeded: what its callable returned, or the JSON that its command wrote."""
    output = status.output
    if not (isinstance(output, dict) and RESULT_KEY in output):
        return output
    if "json" in output:
        return output["json"]
    return cloudpickle.loads(base64.b64decode(output["pickle"]))


def log_of_last_attempt(status: JobStatus) -> str | None:
    """Where a callable's traceback is; None: there was no attempt."""
    if not status.attempts or status.attempts[-1].exit_code in (None, 0):
        return None
    return f"{STEP}_0_attempt_{status.attempts[-1].attempt_id + 1}"


def failure(status: JobStatus, log: str | None) -> JobFailed:
    """Why there is no result."""
    why = f"{status.reason}: " if status.reason else ""
    error = status.error or "it has no result"
    marker = None if log is None else log.rfind(f"{RAISED} ")
    if log is None or marker is None or marker < 0:
        return JobFailed(f"job {status.job_id} is {status.state_name}: {why}{inert(error)}", status)
    line, _, traceback = log[marker:].partition("\n")
    kind = line.removeprefix(RAISED).strip()
    message = error.removeprefix(f"exit code {status.exit_code}: ")
    made = ResultTooLarge if kind == "ResultTooLarge" else CallFailed
    return made(status, kind, message, traceback or None)
