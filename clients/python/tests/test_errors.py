"""What goes wrong is told in a class of its own, and in words."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import cloudpickle
import pytest

from conftest import LONG, Server, program
from steadfast import (
    CallFailed,
    Client,
    Entrypoint,
    InvalidRequest,
    JobFailed,
    NotAllowed,
    NotFound,
    NotPicklable,
    ResultTooLarge,
    RetryConfig,
    ServerUnreachable,
    SteadfastError,
    TooLarge,
    Worker,
    cluster_pb2,
)
from steadfast.connection import Place

TRUE = Entrypoint.from_command("true")


def test_a_callable_that_cannot_be_pickled_is_refused_before_anything_is_sent() -> None:
    lock = threading.Lock()

    def locked() -> None:
        with lock:
            pass

    with pytest.raises(NotPicklable, match="locked cannot be sent to a worker: .*lock"):
        Entrypoint.from_callable(locked)
    with pytest.raises(NotPicklable):
        Entrypoint.from_callable(print, lock)
    with pytest.raises(TypeError):
        Entrypoint.from_callable("print")  # type: ignore[arg-type]
    with pytest.raises(TooLarge, match="at most"):
        Entrypoint.from_callable(len, b"x" * (16 << 20))


def test_a_huge_result_fails_and_says_what_to_do(client: Client) -> None:
    job = client.submit(Entrypoint.from_callable(lambda: "x" * (2 << 20)), "huge")
    with pytest.raises(ResultTooLarge, match="at most 1048576 are kept. Write it somewhere"):
        client.result(job, LONG)
    # Twice, as JSON and pickled, it would not fit; once it does.
    job = client.submit(Entrypoint.from_callable(lambda: "x" * (700 << 10)), "large")
    assert client.result(job, LONG) == "x" * (700 << 10)
    job = client.submit(Entrypoint.from_callable(lambda: b"x" * (700 << 10)), "large")
    assert client.result(job, LONG) == b"x" * (700 << 10)
    # 900 kB, in any language.
    job = client.submit(Entrypoint.from_callable(lambda: "\u5b57" * 300_000), "large")
    assert client.result(job, LONG) == "\u5b57" * 300_000


def test_a_result_that_cannot_be_pickled_fails(client: Client) -> None:
    job = client.submit(Entrypoint.from_callable(threading.Lock), "lock")
    with pytest.raises(CallFailed, match="cannot be pickled") as raised:
        client.result(job, LONG)
    assert raised.value.error_type == "ResultNotPicklable"


@pytest.mark.parametrize("error", [ServerUnreachable, NotAllowed])
def test_a_job_has_failed_also_if_its_log_cannot_be_read(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: type[SteadfastError]
) -> None:
    def refuse(*_: object) -> None:
        raise error("no logs")

    job = client.submit(Entrypoint.from_callable(lambda: 1 // 0), "no-log")
    monkeypatch.setattr(client._rest, "log_files", refuse)
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        client.result(job, LONG)


PRETENDS = {
    "python": ("sys.version_info = (3, 9, 1)", "Python 3.9 with cloudpickle {cloudpickle}"),
    "cloudpickle": ("import cloudpickle; cloudpickle.__version__ = '0.8.1'", "Python {python} with cloudpickle 0.8.1"),
    "nothing": ("sys.modules['cloudpickle'] = None", "Python {python} with cloudpickle none"),
}


@pytest.mark.parametrize("what", PRETENDS)
def test_another_version_is_one_error_that_names_both_and_costs_no_attempt(
    client: Client, tmp_path: Path, what: str
) -> None:
    # A worker's Python that says that it is another.
    pretends, theirs = PRETENDS[what]
    other = tmp_path / "python"
    other.write_text(
        f'#!/bin/sh\nexec python3 -c "import sys; {pretends}; sys.argv[:] = [\'$1\']; '
        "import runpy; runpy.run_path('$1', run_name='__main__')\"\n"
    )
    other.chmod(0o755)
    ours = {"python": "%d.%d" % sys.version_info[:2], "cloudpickle": cloudpickle.__version__}
    often = RetryConfig(max_retries_failure=5, initial_delay=0.01)
    job = client.submit(Entrypoint.from_callable(print).with_python(str(other)), "other", retry=often)
    with pytest.raises(JobFailed) as raised:
        client.result(job, LONG)
    pickled = "pickled by Python {python} with cloudpickle {cloudpickle}".format(**ours)
    assert pickled in str(raised.value) and theirs.format(**ours) in str(raised.value)
    status = raised.value.status
    assert (status.state, status.reason) == (cluster_pb2.JOB_STATE_FAILED, "permanent_error")
    assert (status.failure_count, status.preemption_count, status.exit_code) == (0, 0, None)
    assert [attempt.outcome for attempt in status.attempts] == ["not_completed"]
    assert pickled in client.logs(job)


def test_a_python_that_is_not_there_is_named(client: Client) -> None:
    missing = client.submit(Entrypoint.from_callable(print).with_python("no-such-python"), "missing")
    assert "no such program" in client.wait(missing, LONG).error


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with Client(url, patience=0.1) as client:
            for ask in (
                lambda: client.submit(TRUE, "nowhere"),
                lambda: client.wait("job"),
                lambda: client.wait("job", LONG),
                lambda: client.logs("job"),
            ):
                with pytest.raises(ServerUnreachable, match=f"no server answers at {url}") as raised:
                    ask()
                assert isinstance(raised.value, ConnectionError)


@pytest.mark.parametrize("address", ["127.0.0.1:7117", "ftp://x", "http://", "http://a:b", "http://a/b"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="no server's address"):
        Client(address)


def test_a_wrong_token_is_told_apart_from_none_and_from_a_weak_one(tmp_path: Path, python: Path) -> None:
    def token(scope: str) -> str:
        made = [program(), "token", "create", "--scope", scope, "--data", str(tmp_path), "-o", "json"]
        printed = subprocess.run(made, check=True, capture_output=True, text=True, timeout=LONG).stdout
        return str(json.loads(printed)["token"])

    submit, read, worker = token("submit"), token("read"), token("worker")
    server = Server(tmp_path, python, "up", "--auth", "required")
    try:
        with Client(server.url, token=submit) as client:
            job = client.submit(TRUE, "allowed")
            assert client.wait(job, LONG).has_succeeded
            assert "succeeded" in str(client.explain(job))
        for wrong in (None, "wrong", read, worker):
            with Client(server.url, token=wrong) as client:
                with pytest.raises(NotAllowed) as raised:
                    client.submit(TRUE, "not-allowed")
                assert isinstance(raised.value, PermissionError)
                assert ("STEADFAST_TOKEN" in str(raised.value)) == (wrong is None)
        with Client(server.url, token="wrong") as client, pytest.raises(NotAllowed):
            client.logs(job)
        with pytest.raises(NotAllowed):
            idle = Worker(server.url, name="py", token=submit)
            idle.function("f")(lambda ctx, input: None)
            idle.run()
    finally:
        server.stop()


def test_who_finds_no_token_of_up_is_not_let_in(
    client: Client, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.wait(client.submit(TRUE, "of-its-user"), LONG).has_succeeded
    # Another user is at home elsewhere.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Client(server.url) as stranger, pytest.raises(NotAllowed):
        stranger.submit(TRUE, "of-nobody")
    left = tmp_path / "steadfast" / f"up-{server.url.rpartition(':')[2]}.json"
    left.parent.mkdir()
    # What others can read is not believed.
    left.write_text('{"client": "sf_x_y"}')
    left.chmod(0o644)
    assert Place.find(server.url, None).bearer is None
    left.chmod(0o600)
    assert Place.find(server.url, None).bearer == "Bearer sf_x_y"
    assert Place.find("https://127.0.0.1:7117", None).bearer is None


def test_over_tls_a_server_is_believed_if_somebody_vouches_for_it(tmp_path: Path, python: Path) -> None:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=steadfast"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, check=True, capture_output=True, timeout=LONG)
    config = tmp_path / "steadfast.toml"
    config.write_text(f'[server]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
    server = Server(tmp_path / "data", python, "server", "--config", str(config))
    worker = Worker(server.url, name="py", ca=cert)
    worker.function("f")(lambda ctx, input: "over TLS")
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        assert server.url.startswith("https://")
        job_file = tmp_path / "job.yaml"
        job_file.write_text("name: tls\nsteps:\n  go: { call: f }\n")
        with Client(server.url, ca=cert) as client:
            job = client.submit_file(job_file)
            assert client.result(job, LONG) == "over TLS"
        with Client(server.url, patience=0.1) as client, pytest.raises(ServerUnreachable):
            client.status(job)
        with Client(server.url, patience=0.1) as client, pytest.raises(ServerUnreachable):
            client.logs(job)
    finally:
        worker.stop()
        running.join(LONG)
        server.stop()


def test_what_the_server_refuses_names_the_field(client: Client, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="retry.max_retries_failure"):
        client.submit(TRUE, "negative", retry=RetryConfig(max_retries_failure=-1))
    with pytest.raises(InvalidRequest, match="resources.memory"):
        client.submit(TRUE, "greedy", cluster_pb2.ResourceSpec(memory="lots"))
    with pytest.raises(ValueError, match="initial_delay"):
        client.submit(TRUE, "never", retry=RetryConfig(initial_delay=float("nan")))
    with pytest.raises(TypeError, match="entrypoint is"):
        client.submit(..., "document")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="there is no job"):
        client.status("nobody")
    with pytest.raises(NotFound):
        client.wait("nobody")
    with pytest.raises(NotFound):
        client.explain("nobody")
    job_file = tmp_path / "job.yaml"
    job_file.write_text("name: a\nsteps:\n  a: { runn: x }\n  b: { timeout: 5 }\n")
    with pytest.raises(InvalidRequest, match="(?s)line 3.*line 4"):
        client.submit_file(job_file)
    job_file.write_text("name: a\nfiles: [gone.sh]\nsteps:\n  a: { run: x }\n")
    with pytest.raises(InvalidRequest, match="gone.sh.*cannot be attached"):
        client.submit_file(job_file)
    with pytest.raises(ValueError, match="timeout: '5' has no unit"):
        client.submit(TRUE, "unit", timeout="5")
    for wish in (client.pause, client.resume, client.retry):
        with pytest.raises(NotFound):
            wish("nobody")
    with pytest.raises(SteadfastError):
        client.submit(TRUE, "")
