"""Jobs from a program: submitted, followed, ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, List

import grpc

from . import bulk, requests
from .config import RetryConfig
from .connection import Patience, Place, pause
from .durations import Duration, seconds
from .entrypoint import Entrypoint
from .errors import SteadfastError, WaitTimeout
from .explanation import Explanation
from .rest import Rest
from .status import JobId, JobStatus, JobSummary, LogFile, Output
from .v1 import jobs_pb2 as pb
from .v1.jobs_pb2_grpc import JobsStub

#: For one answer.
ANSWERED_WITHIN = 60.0
#: How long `wait` waits for a server that was there and is gone.
GONE_FOR = 600.0


class Client:
    """A server's jobs. Safe to use from many threads.

    Args:
        server: Its address (default: STEADFAST_SERVER, or http://127.0.0.1:7117)
        token: If it wants one (default: STEADFAST_TOKEN)
        patience: Seconds to keep trying while nobody answers. Trying again never submits twice
        ca, cert, key: Files in PEM for an https address: who vouches for the server, and who we are
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        patience: float = 10.0,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> None:
        self._place = Place.find(server, token, ca, cert, key)
        self._patience = patience
        self._rest = Rest(self._place, patience)
        self._channel = self._place.channel(grpc)
        self._jobs: Any = JobsStub(self._channel)  # type: ignore[no-untyped-call]

    @property
    def server(self) -> str:
        return self._place.url

    def submit(
        self,
        entrypoint: Entrypoint,
        name: str,
        resources: pb.ResourceSpec | None = None,
        environment: pb.EnvironmentConfig | Mapping[str, str] | None = None,
        ports: Sequence[str] | None = None,
        scheduling_timeout_seconds: int = 0,
        retry: RetryConfig | None = None,
        *,
        timeout: Duration | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> JobId:
        """Hands a job over. It is durable when this returns.

        Args:
            entrypoint: Entrypoint.from_callable(…) or Entrypoint.from_command(…)
            name: For people
            resources: What its worker must have: ResourceSpec(cpu=1, memory="512m")
            environment: Variables: EnvironmentConfig(env_vars={…}), or the dict itself
            ports: Names; a free port for each, in STEADFAST_PORT_<NAME>
            scheduling_timeout_seconds: How long it may wait for a worker; 0: for ever
            retry: RetryConfig(…); None: the server's defaults, which retry losses of the worker only
            timeout: Of each attempt: seconds, or a text as in job files, "1m30s"
            labels: What its worker must carry
            idempotency_key: The same key with the same request is the same job (default: a new one)
        """
        request = requests.launch(
            entrypoint, name, resources, environment, ports, scheduling_timeout_seconds, retry,
            timeout, labels, idempotency_key,
        )  # fmt: skip
        return JobId(self._ask(self._jobs.LaunchJob, request).job_id)

    def submit_many(
        self,
        entrypoints: Iterable[Entrypoint],
        name: str,
        resources: pb.ResourceSpec | None = None,
        environment: pb.EnvironmentConfig | Mapping[str, str] | None = None,
        ports: Sequence[str] | None = None,
        scheduling_timeout_seconds: int = 0,
        retry: RetryConfig | None = None,
        *,
        timeout: Duration | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_keys: Iterable[str] | None = None,
    ) -> List[JobId | SteadfastError]:
        """Hands many jobs over, in streams: much sooner done than one by one.

        The answers are in the order of the entrypoints: the id of a job, or the exception that `submit` would have
        raised for it. All that have an id are durable when this returns. Entrypoints are taken as they are sent,
        some thousand at a time.

        Args:
            entrypoints: Of each job one; all else is the same for all, and as in `submit`
            idempotency_keys: For each entrypoint one (default: new ones)
        """
        jobs = (
            requests.launch(
                entrypoint, name, resources, environment, ports, scheduling_timeout_seconds, retry,
                timeout, labels, key,
            )
            for entrypoint, key in bulk.keyed(entrypoints, idempotency_keys)
        )  # fmt: skip
        answers: List[JobId | SteadfastError] = []
        over: SteadfastError | None = None
        for some in bulk.streams(jobs):
            batch = bulk.Batch(self._place, self._patience, some)
            if over is None:
                self._submit_batch(batch)
                over = batch.over
            else:
                batch.give_up(over)
            answers += batch.answers
        return answers

    def run(
        self,
        entrypoint: Entrypoint,
        name: str,
        resources: pb.ResourceSpec | None = None,
        environment: pb.EnvironmentConfig | Mapping[str, str] | None = None,
        ports: Sequence[str] | None = None,
        scheduling_timeout_seconds: int = 0,
        retry: RetryConfig | None = None,
        *,
        timeout: Duration | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        wait_timeout: Duration | None = None,
    ) -> Any:
        """Hands a job over and returns its result: `submit` and `result` in one call.

        Args:
            wait_timeout: Raises WaitTimeout if all of it takes longer; the job goes on. All else is as in `submit`
        """
        request = requests.launch(
            entrypoint, name, resources, environment, ports, scheduling_timeout_seconds, retry,
            timeout, labels, idempotency_key,
        )  # fmt: skip
        return self._result_of(self._run(request, wait_timeout))

    def submit_file(self, path: str | os.PathLike[str], *, idempotency_key: str | None = None) -> JobId:
        """Hands a job file over, with the files that it names, which lie beside it."""
        return self._rest.submit_file(path, idempotency_key or requests.new_key())

    def status(self, job_id: str) -> JobStatus:
        """The job as it is now, with its attempts."""
        answer = self._ask(self._jobs.GetJobStatus, pb.GetJobStatusRequest(job_id=job_id))
        return JobStatus.of(answer.job)

    def wait(self, job_id: str, timeout: Duration | None = None) -> JobStatus:
        """Returns when the job has ended, whatever its end; raises WaitTimeout if that takes longer.

        Goes on waiting while the server is restarted, up to ten minutes.
        """
        timeout = None if timeout is None else seconds(timeout, "timeout")
        if timeout is not None and timeout <= 0:
            return _ended(self.status(job_id), timeout)
        return _last(self.watch(job_id, timeout))

    def watch(self, job_id: str, timeout: Duration | None = None) -> Iterator[JobStatus]:
        """The status now, and again after a change, until the job has ended."""
        return self._watch(job_id, timeout, self._patience)

    def _watch(self, job_id: str, timeout: Duration | None, patience: float) -> Iterator[JobStatus]:
        """`patience` is with a server that has told nothing yet."""
        timeout = None if timeout is None else seconds(timeout, "timeout")
        deadline = None if timeout is None else time.monotonic() + timeout
        last: JobStatus | None = None
        tries, give_up = 0, 0.0
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise _timeout(job_id, timeout, last)
            sent = self._place.metadata
            call = self._jobs.WatchJob(pb.WatchJobRequest(job_id=job_id), timeout=left, metadata=sent)
            try:
                for told in call:
                    last, tries = JobStatus.of(told), 0
                    yield last
                    if last.has_ended:
                        return
                why = "the server ended the answer"
            except grpc.RpcError as error:
                if deadline is not None and time.monotonic() >= deadline:
                    raise _timeout(job_id, timeout, last) from None
                if not self._place.can_pass(error, sent):
                    raise self._place.error(error) from None
                why = error.details() or error.code().name
            finally:
                call.cancel()
            now = time.monotonic()
            if tries == 0:
                give_up = now + (patience if last is None else GONE_FOR)
            # A wait that ends by itself is told by its own end.
            if now >= give_up and (deadline is None or last is None):
                raise self._place.unreachable(why)
            rest = give_up - now if deadline is None else deadline - now
            time.sleep(max(min(pause(tries), rest), 0))
            tries += 1

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Waits, and returns what the callable returned, or the JSON that a command wrote to $STEADFAST_OUTPUT.

        Raises CallFailed with what the callable raised, or JobFailed. A result that is more than JSON is
        unpickled, which is for servers and workers that you trust.
        """
        return self._result_of(self.wait(job_id, timeout))

    def terminate(self, job_id: str) -> None:
        """Ends what runs, and the job: it is KILLED, and never retried. Again: nothing more happens."""
        self._ask(self._jobs.TerminateJob, pb.TerminateJobRequest(job_id=job_id))

    def pause(self, job_id: str) -> None:
        """Nothing new of it starts; what runs goes on. Again: nothing more happens."""
        self._rest.command(job_id, "pause")

    def resume(self, job_id: str) -> None:
        """A job that was paused goes on."""
        self._rest.command(job_id, "resume")

    def retry(
        self,
        job_id: str,
        *,
        from_step: str | None = None,
        grant: int | None = None,
        idempotency_key: str | None = None,
    ) -> JobId:
        """A new job that keeps what succeeded of one that has ended, and does the rest again.

        Args:
            from_step: This step and all that need it are done again too
            grant: So many more attempts, and so much more of its budget
            idempotency_key: The same key is the same new job (default: a new one)
        """
        return self._rest.retry(job_id, from_step, grant, idempotency_key or requests.new_key())

    def logs(
        self, job_id: str, step: str | None = None, *, item: int | None = None, attempt: int | None = None
    ) -> str:
        """What attempts have printed, stdout and stderr together; more than one with a heading each.

        `attempt` counts from 1, `item` from 0.
        """
        return self._rest.logs(job_id, step, item, attempt)

    def log_files(self, job_id: str, step: str | None = None) -> List[LogFile]:
        """Which logs there are."""
        return self._rest.log_files(job_id, step)

    def outputs(self, job_id: str, step: str | None = None) -> Iterator[Output]:
        """What all items have given, or those of a step. A status shows the first megabyte of it."""
        return self._rest.outputs(job_id, step)

    def explain(self, job_id: str, step: str | None = None) -> Explanation:
        """Why the job is where it is. Prints as text, and a notebook shows it as a table."""
        return self._rest.explain(job_id, step)

    def list(
        self, state: str = "", name: str = "", label: str = "", limit: int = 100
    ) -> List[JobSummary]:
        """Jobs, the newest first: at most `limit`.

        Args:
            state: pending, running, paused, succeeded, partial, failed, killed
            label: key=value
        """
        found: List[JobSummary] = []
        cursor = ""
        while True:
            page = min(limit - len(found), 1000)
            if page <= 0:
                return found
            request = pb.ListJobsRequest(state=state, name=name, label=label, limit=page, cursor=cursor)
            answer = self._ask(self._jobs.ListJobs, request)
            found += [JobSummary.of(job) for job in answer.jobs]
            cursor = answer.next_cursor
            if not cursor:
                return found

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _submit_batch(self, batch: bulk.Batch) -> None:
        """Streams until all are answered, or nobody answers any more."""
        while batch.is_open:
            sent, error = self._place.metadata, None
            call = self._jobs.SubmitJobs(batch.messages(), timeout=ANSWERED_WITHIN, metadata=sent)
            try:
                for told in call:
                    batch.hear(told)
            except grpc.RpcError as broken:
                error = broken
            finally:
                call.cancel()
            time.sleep(batch.pause(error, sent))

    def _run(self, request: pb.LaunchJobRequest, timeout: Duration | None) -> JobStatus:
        timeout = None if timeout is None else seconds(timeout, "wait_timeout")
        deadline = None if timeout is None else time.monotonic() + timeout
        job_id, sent, late = "", self._place.metadata, False
        call = self._jobs.RunJob(pb.NewJob(launch=request), timeout=timeout, metadata=sent)
        try:
            for told in call:
                job_id = told.job_id
                if told.HasField("job"):
                    return JobStatus.of(told.job)
        except grpc.RpcError as error:
            if not self._place.can_pass(error, sent):
                raise self._place.error(error) from None
            late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            call.cancel()
        if not job_id:
            job_id = self._ask(self._jobs.LaunchJob, request).job_id
        left = None if deadline is None else deadline - time.monotonic()
        if timeout is not None and left is not None and (late or left <= 0):
            return _ended(self.status(job_id), timeout)
        return _last(self._watch(job_id, left, GONE_FOR))

    def _result_of(self, status: JobStatus) -> Any:
        if status.has_succeeded:
            return requests.result(status)
        name = requests.log_of_last_attempt(status)
        raise requests.failure(status, _tail(self._rest, status.job_id, name))

    def _ask(self, method: Callable[..., Any], request: Any) -> Any:
        """Again while nobody answers: all that is asked here can be asked twice."""
        patience = Patience(self._patience)
        while True:
            sent = self._place.metadata
            try:
                return method(request, timeout=ANSWERED_WITHIN, metadata=sent)
            except grpc.RpcError as error:
                pause = patience.pause()
                if pause is None or not self._place.can_pass(error, sent):
                    raise self._place.error(error) from None
            time.sleep(pause)


def _tail(rest: Rest, job_id: str, name: str | None) -> str | None:
    """The end of a log; None: it has none, or it cannot be had, which must not hide why the job failed."""
    if name is None:
        return None
    try:
        for log in rest.log_files(job_id, requests.STEP):
            if log.name == name:
                return rest.read(job_id, log.step, name, max(log.size - requests.TAIL, 0))
    except SteadfastError:
        pass
    return None


def _last(statuses: Iterator[JobStatus]) -> JobStatus:
    status = None
    for status in statuses:
        pass
    assert status is not None, "a watch ends with the job"
    return status


def _ended(status: JobStatus, timeout: float) -> JobStatus:
    """Of somebody who does not want to wait."""
    if not status.has_ended:
        raise _timeout(status.job_id, timeout, status)
    return status


def _timeout(job_id: str, timeout: float | None, last: JobStatus | None) -> WaitTimeout:
    state = f"; it is {last.state_name}" if last is not None else ""
    return WaitTimeout(f"job {job_id} has not ended within {timeout:g} s{state}", last)
