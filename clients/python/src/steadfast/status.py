"""What a server tells of a job."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NewType

from . import chart
from .v1 import jobs_pb2 as pb
from .words import inert

#: Of a job. Ids sort by the time of their submission.
JobId = NewType("JobId", str)

#: States that never change again.
ENDED = frozenset(
    {
        pb.JOB_STATE_SUCCEEDED,
        pb.JOB_STATE_FAILED,
        pb.JOB_STATE_KILLED,
        pb.JOB_STATE_WORKER_FAILED,
        pb.JOB_STATE_UNSCHEDULABLE,
        pb.JOB_STATE_PARTIAL,
    }
)

#: In the output of a callable's attempt: how its result is written.
RESULT_KEY = "steadfast_result"


def state_name(state: int) -> str:
    """`succeeded` of JOB_STATE_SUCCEEDED."""
    return pb.JobState.Name(state).removeprefix("JOB_STATE_").lower()


@dataclass(frozen=True)
class JobAttempt:
    """One execution. Times are Unix milliseconds, 0 for not yet."""

    #: From 0.
    attempt_id: int
    worker_id: str
    #: One of cluster_pb2.JOB_STATE_RUNNING, SUCCEEDED, FAILED, KILLED, WORKER_FAILED
    state: int
    #: Of a process that has ended; death by signal N is 128 + N.
    exit_code: int | None
    #: What killed it, if something did.
    signal: int | None
    error: str
    started_at_ms: int
    finished_at_ms: int
    #: The worker was lost; not charged to failures.
    is_worker_failure: bool
    #: The state in finer words: running, succeeded, failed, not_completed, timed_out, worker_lost, killed
    outcome: str

    @property
    def state_name(self) -> str:
        """`succeeded`, `worker_failed`, …"""
        return state_name(self.state)

    @classmethod
    def of(cls, told: pb.JobAttempt) -> JobAttempt:
        return cls(
            attempt_id=told.attempt_id,
            worker_id=told.worker_id,
            state=int(told.state),
            exit_code=told.exit_code if told.HasField("exit_code") else None,
            signal=told.signal if told.HasField("signal") else None,
            error=told.error,
            started_at_ms=told.started_at_ms,
            finished_at_ms=told.finished_at_ms,
            is_worker_failure=told.is_worker_failure,
            outcome=told.outcome,
        )


@dataclass(frozen=True)
class JobStatus:
    """A job as it is, or was when it was asked. Times are Unix milliseconds, 0 for not yet.

    Of a job with one work item all of it; of a larger one the first item's attempts, and the sums over all.
    """

    job_id: JobId
    #: One of cluster_pb2.JOB_STATE_…; PENDING whenever nothing of it runs and it has not ended
    state: int
    name: str
    #: Of the last attempt, if its process has ended; death by signal N is 128 + N.
    exit_code: int | None
    #: The last error; empty once it has succeeded.
    error: str
    #: Why it was not tried again: attempts_exhausted, cancelled, …
    reason: str
    submitted_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    #: Who has the current attempt; empty: nobody.
    worker_id: str
    failure_count: int
    #: Every loss of a worker, also the one that was one too many.
    preemption_count: int
    #: The latest attempt, from 0.
    current_attempt_id: int
    #: The last 100.
    attempts: tuple[JobAttempt, ...]
    max_retries_failure: int
    max_retries_preemption: int
    #: When the next retry can start; 0: none waits.
    retry_available_at_ms: int
    output_json: str = field(repr=False)
    status_json: str = field(repr=False)

    @classmethod
    def of(cls, told: pb.JobStatus) -> JobStatus:
        return cls(
            job_id=JobId(told.job_id),
            state=int(told.state),
            name=told.name,
            exit_code=told.exit_code if told.HasField("exit_code") else None,
            error=told.error,
            reason=told.reason,
            submitted_at_ms=told.submitted_at_ms,
            started_at_ms=told.started_at_ms,
            finished_at_ms=told.finished_at_ms,
            worker_id=told.worker_id,
            failure_count=told.failure_count,
            preemption_count=told.preemption_count,
            current_attempt_id=told.current_attempt_id,
            attempts=tuple(JobAttempt.of(attempt) for attempt in told.attempts),
            max_retries_failure=told.max_retries_failure,
            max_retries_preemption=told.max_retries_preemption,
            retry_available_at_ms=told.retry_available_at_ms,
            output_json=told.output_json,
            status_json=told.status_json,
        )

    @property
    def state_name(self) -> str:
        """`succeeded`, `worker_failed`, …"""
        return state_name(self.state)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_succeeded(self) -> bool:
        return self.state == pb.JOB_STATE_SUCCEEDED

    @property
    def output(self) -> Any:
        """What the first item's step wrote, as JSON has it. Of a callable see `Client.result`."""
        return json.loads(self.output_json) if self.output_json else None

    @property
    def details(self) -> dict[str, Any] | None:
        """Everything, with all steps and items, as `GET /v1/jobs/{id}` shows it. None: more than 2 MiB."""
        return json.loads(self.status_json) if self.status_json else None

    def chart(self) -> chart.Chart:
        """Its attempts over time."""
        return chart.attempts(self)

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        error = f": {inert(self.error)}" if self.error else ""
        counts = f"{self.failure_count} failures, {self.preemption_count} preemptions"
        return f"{self.name} {self.job_id}: {self.state_name}{why}, {counts}{error}"

    def _repr_html_(self) -> str:
        return self.chart()._repr_html_()


@dataclass(frozen=True)
class JobSummary:
    """A job in a list. Why it failed only its status tells."""

    job_id: JobId
    name: str
    state: int
    submitted_at_ms: int
    finished_at_ms: int

    @classmethod
    def of(cls, told: pb.JobSummary) -> JobSummary:
        return cls(
            job_id=JobId(told.job_id),
            name=told.name,
            state=int(told.state),
            submitted_at_ms=told.submitted_at_ms,
            finished_at_ms=told.finished_at_ms,
        )

    @property
    def state_name(self) -> str:
        return state_name(self.state)


@dataclass(frozen=True)
class Output:
    """What one item has given, as JSON has it."""

    step: str
    item: int
    output: Any
    datacenter: str | None = None


@dataclass(frozen=True)
class LogFile:
    """What one attempt has printed: where it is, and how much."""

    step: str
    name: str
    item: int
    #: From 1, as everywhere but in `attempt_id`.
    attempt: int
    size: int
    datacenter: str | None = None
    role: str = "item"
    #: The attempt has ended, and the rest of its log has not arrived from its worker yet.
    arriving: bool = False
