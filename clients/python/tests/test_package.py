"""The package itself: what it is made of, and that its types hold."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import steadfast
from conftest import LONG, PACKAGE
from steadfast import ResourceSpec, RetryConfig, cluster_pb2
from steadfast.durations import milliseconds


def test_the_stubs_are_what_the_proto_files_say(tmp_path: Path) -> None:
    made = [sys.executable, str(PACKAGE / "generate.py"), "--into", str(tmp_path)]
    subprocess.run(made, check=True, timeout=LONG)
    fresh = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.py*")}
    source = PACKAGE / "src"
    kept = (path for path in (source / "steadfast" / "v1").rglob("*.py*") if path.suffix != ".pyc")
    checked_in = {path.relative_to(source): path.read_bytes() for path in kept}
    assert fresh.keys() == checked_in.keys() and len(fresh) == 7
    stale = [str(path) for path, content in fresh.items() if checked_in[path] != content]
    assert not stale, f"stale, run generate.py: {stale}"


def test_the_types_hold() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null"],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        timeout=2 * LONG,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_tested_is_what_was_built() -> None:
    assert not Path(steadfast.__file__).is_relative_to(PACKAGE)
    assert (Path(steadfast.__file__).parent / "py.typed").exists()


def test_a_retry_has_the_documents_names_and_defaults() -> None:
    assert dataclasses.asdict(RetryConfig()) == {
        "max_retries_failure": 0,
        "max_retries_preemption": 100,
        "initial_delay": 1.0,
        "max_delay": 60.0,
        "backoff_multiplier": 2.0,
        "retry_on_exit_codes": [],
        "no_retry_on_exit_codes": [],
    }
    assert RetryConfig() == RetryConfig(0, 100, 1.0, 60.0, 2.0, [], [])
    assert RetryConfig().to_proto() == cluster_pb2.RetryConfig(), "what is not given is not sent"
    zero = RetryConfig(max_retries_failure=0).to_proto()
    assert zero.HasField("max_retries_failure") and not zero.HasField("max_retries_preemption")
    more = dataclasses.replace(RetryConfig(max_retries_failure=3), backoff_multiplier=1.5).to_proto()
    assert more == cluster_pb2.RetryConfig(max_retries_failure=3, backoff_multiplier=1.5)
    sent = RetryConfig(initial_delay="1500ms", max_delay="1m").to_proto()
    assert (sent.initial_retry_delay_ms, sent.max_retry_delay_ms) == (1500, 60_000)
    sent = RetryConfig(initial_delay=0.0001, max_delay=0.3).to_proto()
    assert (sent.initial_retry_delay_ms, sent.max_retry_delay_ms) == (1, 300)
    assert ResourceSpec is cluster_pb2.ResourceSpec
    assert cluster_pb2.ResourceSpec(cpu=1, memory="512m").cpu == 1.0


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500), ("5s", 5000), ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("5min", 300_000),
        ("90sec", 90_000), ("2 minutes", 120_000), ("1day", 86_400_000), (" 0s ", 0), (0.0001, 1), (2, 2000),
    ],
)  # fmt: skip
def test_durations_are_read_as_job_files_write_them(text: str | float, ms: int) -> None:
    assert milliseconds(text, "timeout") == ms


@pytest.mark.parametrize("text", ["5", "", " ", "s", "-5s", "1.5s", "5 parsecs", "5s!", -1, float("nan"), True])
def test_what_is_no_duration_is_refused_with_its_name(text: str | float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        milliseconds(text, "timeout")
