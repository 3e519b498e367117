"""What a job asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .v1 import jobs_pb2 as pb

ResourceSpec = pb.ResourceSpec
EnvironmentConfig = pb.EnvironmentConfig


@dataclass
class RetryConfig:
    """Job retry configuration.

    Args:
        max_retries_failure: Max retries for job failures (default: 0, no retry)
        max_retries_preemption: Max retries for worker failures (default: 100)
        initial_delay: Initial delay between retries (default: 1.0 seconds)
        max_delay: Maximum delay for exponential backoff (default: 60.0 seconds)
        backoff_multiplier: Multiplier for exponential backoff (default: 2.0)
        retry_on_exit_codes: Only retry on these exit codes (empty = any non-zero)
        no_retry_on_exit_codes: Never retry on these exit codes
    """

    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    initial_delay: float = 1.0
    max_delay: float = 60.0
    backoff_multiplier: float = 2.0
    retry_on_exit_codes: list[int] = field(default_factory=list)
    no_retry_on_exit_codes: list[int] = field(default_factory=list)

    def to_proto(self) -> pb.RetryConfig:
        """As the server is asked; it says what is wrong with a number."""
        return pb.RetryConfig(
            max_retries_failure=self.max_retries_failure,
            max_retries_preemption=self.max_retries_preemption,
            initial_retry_delay_ms=milliseconds(self.initial_delay, "initial_delay"),
            max_retry_delay_ms=milliseconds(self.max_delay, "max_delay"),
            backoff_multiplier=self.backoff_multiplier,
            retry_on_exit_codes=self.retry_on_exit_codes,
            no_retry_on_exit_codes=self.no_retry_on_exit_codes,
        )


def milliseconds(seconds: float, name: str) -> int:
    """Whole ones; what is more than 0 stays so."""
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, not {seconds!r}")
    return math.ceil(round(seconds * 1000, 3))
