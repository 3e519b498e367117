"""What a job asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from .durations import Duration, milliseconds
from .v1 import jobs_pb2 as pb

ResourceSpec = pb.ResourceSpec
EnvironmentConfig = pb.EnvironmentConfig


class _Int(int):
    """A default that nobody has given. It is equal to the number that it is, and not sent."""


class _Float(float):
    """Likewise."""


@dataclass
class RetryConfig:
    """Job retry configuration. What is not given is not sent: there the server's own defaults hold, which
    are these unless its operator has set others.

    Args:
        max_retries_failure: Max retries for job failures (default: 0, no retry)
        max_retries_preemption: Max retries for worker failures (default: 100)
        initial_delay: Initial delay between retries (default: 1.0 seconds), or a text: "500ms"
        max_delay: Maximum delay for exponential backoff (default: 60.0 seconds), likewise
        backoff_multiplier: Multiplier for exponential backoff (default: 2.0)
        retry_on_exit_codes: Only retry on these exit codes (empty = any non-zero)
        no_retry_on_exit_codes: Never retry on these exit codes
    """

    max_retries_failure: int = _Int(0)
    max_retries_preemption: int = _Int(100)
    initial_delay: Duration = _Float(1.0)
    max_delay: Duration = _Float(60.0)
    backoff_multiplier: float = _Float(2.0)
    retry_on_exit_codes: list[int] = field(default_factory=list)
    no_retry_on_exit_codes: list[int] = field(default_factory=list)

    def to_proto(self) -> pb.RetryConfig:
        """As the server is asked, which says what is wrong with a number: what was given, and nothing else."""
        asked = pb.RetryConfig(
            retry_on_exit_codes=self.retry_on_exit_codes,
            no_retry_on_exit_codes=self.no_retry_on_exit_codes,
        )
        for name in ("max_retries_failure", "max_retries_preemption", "backoff_multiplier"):
            if _is_given(value := getattr(self, name)):
                setattr(asked, name, value)
        if _is_given(self.initial_delay):
            asked.initial_retry_delay_ms = milliseconds(self.initial_delay, "initial_delay")
        if _is_given(self.max_delay):
            asked.max_retry_delay_ms = milliseconds(self.max_delay, "max_delay")
        return asked


def _is_given(value: object) -> bool:
    return value is not None and not isinstance(value, _Int | _Float)
