"""Many jobs at once: what both clients send, and how they understand the answers. No connection is used here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import grpc

from .connection import Patience, Place
from .entrypoint import Entrypoint
from .errors import SteadfastError, TooLarge
from .status import JobId
from .v1 import jobs_pb2 as pb

#: Of one stream: so many jobs, and not many more bytes. They are kept until they are answered.
IN_ONE_STREAM = 8192
STREAM_BYTES = 64 << 20
#: The same of one message.
IN_ONE_MESSAGE = 256
MESSAGE_BYTES = 1 << 20
#: A message has at most 16 MiB, with what is around the job. A larger one would break the stream for all.
LARGEST_JOB = (16 << 20) - 64

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_SEND_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


def keyed(
    entrypoints: Iterable[Entrypoint], keys: Iterable[str] | None
) -> Iterable[tuple[Entrypoint, str | None]]:
    if isinstance(keys, str):
        raise TypeError("idempotency_keys has a key for each entrypoint")
    if keys is None:
        return ((entrypoint, None) for entrypoint in entrypoints)
    return zip(entrypoints, keys, strict=True)


def streams(jobs: Iterable[pb.LaunchJobRequest]) -> Iterator[list[pb.LaunchJobRequest]]:
    return _parts(jobs, IN_ONE_STREAM, STREAM_BYTES)


def _parts(
    jobs: Iterable[pb.LaunchJobRequest], most: int, most_bytes: int
) -> Iterator[list[pb.LaunchJobRequest]]:
    part: list[pb.LaunchJobRequest] = []
    size = 0
    for job in jobs:
        more = job.ByteSize()
        if part and (len(part) == most or size + more > most_bytes):
            yield part
            part, size = [], 0
        part.append(job)
        size += more
    if part:
        yield part


def _message(jobs: list[pb.LaunchJobRequest]) -> pb.SubmitJobsRequest:
    return pb.SubmitJobsRequest(jobs=[pb.NewJob(launch=job) for job in jobs])


class Batch:
    """Jobs of one stream, or of as many as it takes until each is answered."""

    def __init__(self, place: Place, patience: float, jobs: list[pb.LaunchJobRequest]) -> None:
        self._place = place
        self._patience = patience
        self._tries = Patience(patience)
        self._jobs = jobs
        #: Why a stream that did not break has not answered all.
        self._why: SteadfastError = place.unreachable("the server ended the answer")
        #: In the order of the jobs.
        self.answers: list[JobId | SteadfastError] = [self._why] * len(jobs)
        #: Why nothing more is sent, if it is not because all are answered.
        self.over: SteadfastError | None = None
        # By their place in `jobs`: without an answer in this stream, and with one that says to send it again.
        self._open: deque[int] = deque()
        self._again: list[int] = []
        self._sent = 0
        for index, job in enumerate(jobs):
            if (size := job.ByteSize()) > LARGEST_JOB:
                self.answers[index] = TooLarge(f"the job has {size} bytes, and at most {LARGEST_JOB} can be sent")
            else:
                self._open.append(index)

    @property
    def is_open(self) -> bool:
        return self.over is None and self._left > 0

    @property
    def _left(self) -> int:
        return len(self._open) + len(self._again)

    def messages(self) -> Iterator[pb.SubmitJobsRequest]:
        """Of a new stream: all that is not answered, with the same keys as before."""
        self._open.extendleft(reversed(self._again))
        self._again.clear()
        self._sent = len(self._open)
        # Made now, and read while answers are heard.
        jobs = [self._jobs[index] for index in self._open]
        return map(_message, _parts(jobs, IN_ONE_MESSAGE, MESSAGE_BYTES))

    def hear(self, told: pb.SubmitJobsResponse) -> None:
        for result in told.results:
            index = self._open.popleft()
            if not result.HasField("refusal"):
                self.answers[index] = JobId(result.job_id)
                continue
            code = _CODES.get(result.refusal.code, grpc.StatusCode.UNKNOWN)
            refused = self._place.refusal(code, result.refusal.message)
            if code in _SEND_AGAIN:
                self._again.append(index)
                self._why = refused
            else:
                self.answers[index] = refused

    def pause(self, error: grpc.RpcError | None, sent: tuple[tuple[str, str], ...]) -> float:
        """The stream has ended, with an error or without: how long until the next one, if it `is_open`."""
        if self._left < self._sent:
            self._tries = Patience(self._patience)
        if self._left == 0:
            return 0.0
        pause = self._tries.pause()
        if pause is None or (error is not None and not self._place.can_pass(error, sent)):
            self.give_up(self._why if error is None else self._place.error(error))
        return pause or 0.0

    def give_up(self, why: SteadfastError) -> None:
        self.over = why
        for index in (*self._again, *self._open):
            self.answers[index] = why
