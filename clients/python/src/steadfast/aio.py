"""The same client for programs that run on asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, List

import grpc
import grpc.aio

from . import bulk, requests
from .client import ANSWERED_WITHIN, GONE_FOR, _ended, _tail, _timeout
from .config import RetryConfig
from .connection import Patience, Place, pause
from .durations import Duration, seconds
from .entrypoint import Entrypoint
from .errors import SteadfastError
from .explanation import Explanation
from .rest import Rest
from .status import JobId, JobStatus, JobSummary, LogFile, Output
from .v1 import jobs_pb2 as pb
from .v1.jobs_pb2_grpc import JobsStub


class AsyncClient:
    """As `Client`, to be awaited: the same arguments, answers and exceptions. To be made inside of a loop."""

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
        self._channel = self._place.channel(grpc.aio)
        self._jobs: Any = JobsStub(self._channel)  # type: ignore[no-untyped-call]

    @property
    def server(self) -> str:
        return self._place.url

    async def submit(
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
        """See Client.submit."""
        request = requests.launch(
            entrypoint, name, resources, environment, ports, scheduling_timeout_seconds, retry,
            timeout, labels, idempotency_key,
        )  # fmt: skip
        return JobId((await self._ask(self._jobs.LaunchJob, request)).job_id)

    async def submit_many(
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
        """See Client.submit_many."""
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
                await self._submit_batch(batch)
                over = batch.over
            else:
                batch.give_up(over)
            answers += batch.answers
        return answers

    async def run(
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
        """See Client.run."""
        request = requests.launch(
            entrypoint, name, resources, environment, ports, scheduling_timeout_seconds, retry,
            timeout, labels, idempotency_key,
        )  # fmt: skip
        return await self._result_of(await self._run(request, wait_timeout))

    async def submit_file(
        self, path: str | os.PathLike[str], *, idempotency_key: str | None = None
    ) -> JobId:
        """See Client.submit_file."""
        key = idempotency_key or requests.new_key()
        return await asyncio.to_thread(self._rest.submit_file, path, key)

    async def status(self, job_id: str) -> JobStatus:
        """See Client.status."""
        answer = await self._ask(self._jobs.GetJobStatus, pb.GetJobStatusRequest(job_id=job_id))
        return JobStatus.of(answer.job)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobStatus:
        """See Client.wait."""
        timeout = None if timeout is None else seconds(timeout, "timeout")
        if timeout is not None and timeout <= 0:
            return _ended(await self.status(job_id), timeout)
        return await _last(self.watch(job_id, timeout))

    def watch(self, job_id: str, timeout: Duration | None = None) -> AsyncIterator[JobStatus]:
        """See Client.watch."""
        return self._watch(job_id, timeout, self._patience)

    async def _watch(self, job_id: str, timeout: Duration | None, patience: float) -> AsyncIterator[JobStatus]:
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
                async for told in call:
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
            await asyncio.sleep(max(min(pause(tries), rest), 0))
            tries += 1

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """See Client.result."""
        return await self._result_of(await self.wait(job_id, timeout))

    async def terminate(self, job_id: str) -> None:
        """See Client.terminate."""
        await self._ask(self._jobs.TerminateJob, pb.TerminateJobRequest(job_id=job_id))

    async def pause(self, job_id: str) -> None:
        """See Client.pause."""
        await asyncio.to_thread(self._rest.command, job_id, "pause")

    async def resume(self, job_id: str) -> None:
        """See Client.resume."""
        await asyncio.to_thread(self._rest.command, job_id, "resume")

    async def retry(
        self,
        job_id: str,
        *,
        from_step: str | None = None,
        grant: int | None = None,
        idempotency_key: str | None = None,
    ) -> JobId:
        """See Client.retry."""
        key = idempotency_key or requests.new_key()
        return await asyncio.to_thread(self._rest.retry, job_id, from_step, grant, key)

    async def logs(
        self, job_id: str, step: str | None = None, *, item: int | None = None, attempt: int | None = None
    ) -> str:
        """See Client.logs."""
        return await asyncio.to_thread(self._rest.logs, job_id, step, item, attempt)

    async def log_files(self, job_id: str, step: str | None = None) -> List[LogFile]:
        """See Client.log_files."""
        return await asyncio.to_thread(self._rest.log_files, job_id, step)

    async def outputs(self, job_id: str, step: str | None = None) -> List[Output]:
        """See Client.outputs."""
        return await asyncio.to_thread(lambda: [*self._rest.outputs(job_id, step)])

    async def explain(self, job_id: str, step: str | None = None) -> Explanation:
        """See Client.explain."""
        return await asyncio.to_thread(self._rest.explain, job_id, step)

    async def list(
        self, state: str = "", name: str = "", label: str = "", limit: int = 100
    ) -> List[JobSummary]:
        """See Client.list."""
        found: List[JobSummary] = []
        cursor = ""
        while True:
            page = min(limit - len(found), 1000)
            if page <= 0:
                return found
            request = pb.ListJobsRequest(state=state, name=name, label=label, limit=page, cursor=cursor)
            answer = await self._ask(self._jobs.ListJobs, request)
            found += [JobSummary.of(job) for job in answer.jobs]
            cursor = answer.next_cursor
            if not cursor:
                return found

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _submit_batch(self, batch: bulk.Batch) -> None:
        while batch.is_open:
            sent, error = self._place.metadata, None
            call = self._jobs.SubmitJobs(batch.messages(), timeout=ANSWERED_WITHIN, metadata=sent)
            try:
                async for told in call:
                    batch.hear(told)
            except grpc.RpcError as broken:
                error = broken
            finally:
                call.cancel()
            await asyncio.sleep(batch.pause(error, sent))

    async def _run(self, request: pb.LaunchJobRequest, timeout: Duration | None) -> JobStatus:
        timeout = None if timeout is None else seconds(timeout, "wait_timeout")
        deadline = None if timeout is None else time.monotonic() + timeout
        job_id, sent, late = "", self._place.metadata, False
        call = self._jobs.RunJob(pb.NewJob(launch=request), timeout=timeout, metadata=sent)
        try:
            async for told in call:
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
            job_id = (await self._ask(self._jobs.LaunchJob, request)).job_id
        left = None if deadline is None else deadline - time.monotonic()
        if timeout is not None and left is not None and (late or left <= 0):
            return _ended(await self.status(job_id), timeout)
        return await _last(self._watch(job_id, left, GONE_FOR))

    async def _result_of(self, status: JobStatus) -> Any:
        if status.has_succeeded:
            return requests.result(status)
        name = requests.log_of_last_attempt(status)
        raise requests.failure(status, await asyncio.to_thread(_tail, self._rest, status.job_id, name))

    async def _ask(self, method: Callable[..., Any], request: Any) -> Any:
        patience = Patience(self._patience)
        while True:
            sent = self._place.metadata
            try:
                return await method(request, timeout=ANSWERED_WITHIN, metadata=sent)
            except grpc.RpcError as error:
                pause = patience.pause()
                if pause is None or not self._place.can_pass(error, sent):
                    raise self._place.error(error) from None
            await asyncio.sleep(pause)


async def _last(statuses: AsyncIterator[JobStatus]) -> JobStatus:
    status = None
    async for status in statuses:
        pass
    assert status is not None, "a watch ends with the job"
    return status
