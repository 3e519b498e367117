"""Steadfast from Python: submit jobs, follow them, and run functions for a server.

    from steadfast import Client, Entrypoint, RetryConfig

    with Client("http://127.0.0.1:7117") as client:
        job = client.submit(Entrypoint.from_callable(pow, 2, 10), "power", retry=RetryConfig(max_retries_failure=3))
        print(client.result(job))
"""

from . import cluster_pb2
from .aio import AsyncClient
from .client import Client
from .config import EnvironmentConfig, ResourceSpec, RetryConfig
from .context import Context
from .entrypoint import Entrypoint
from .errors import (
    CallFailed,
    Cancelled,
    Conflict,
    Defer,
    InvalidRequest,
    JobFailed,
    NotAllowed,
    NotFound,
    NotPicklable,
    PermanentError,
    ResultTooLarge,
    RetryAfter,
    ServerError,
    ServerUnreachable,
    SteadfastError,
    TooLarge,
    WaitTimeout,
)
from .explanation import Explanation
from .status import JobAttempt, JobId, JobStatus, JobSummary, LogFile, Output
from .worker import Worker

__all__ = [
    "AsyncClient",
    "CallFailed",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Defer",
    "Entrypoint",
    "EnvironmentConfig",
    "Explanation",
    "InvalidRequest",
    "JobAttempt",
    "JobFailed",
    "JobId",
    "JobStatus",
    "JobSummary",
    "LogFile",
    "NotAllowed",
    "NotFound",
    "NotPicklable",
    "Output",
    "PermanentError",
    "ResourceSpec",
    "ResultTooLarge",
    "RetryAfter",
    "RetryConfig",
    "ServerError",
    "ServerUnreachable",
    "SteadfastError",
    "TooLarge",
    "WaitTimeout",
    "Worker",
    "cluster_pb2",
]
