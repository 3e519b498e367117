"""A real server and real workers for the tests, with the Python of a fresh environment that has the built wheel.

| variable | is |
|---|---|
| STEADFAST_BIN | the program |
| STEADFAST_WHEEL | the wheel that is tested; installed here, too |
| STEADFAST_WHEELS | a folder with what it asks for |

`./test` sets all. Nothing here sleeps to wait for something: a server's address is read from what it prints, and
everything else is an answer that is waited for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from steadfast import Client
from steadfast.connection import Place

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
CHECKOUT = PACKAGE.parent.parent
#: Longer than anything here takes, so that a failure is a failure and not a hang.
LONG = 60.0

# So that a job that fails "half of the time" fails the same times in every run of the tests: the first attempt
# draws 0.13, the second 0.96.
SEEDED = "import os, random\nif 'STEADFAST_ATTEMPT' in os.environ: random.seed(int(os.environ['STEADFAST_ATTEMPT']))\n"


def program() -> str:
    path = os.environ.get("STEADFAST_BIN")
    assert path, "STEADFAST_BIN names the program; ./test says how"
    return path


class Process:
    """A program of ours, and what it prints."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: list[str] = []

    def line_with(self, word: str) -> str:
        """Reads until it is said."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)
            if word in line:
                # What it says from now on is read too, or it would wait for a reader.
                self._reader = threading.Thread(target=self._rest, daemon=True)
                self._reader.start()
                return line
        raise AssertionError(f"it ended without saying {word!r}: {''.join(self._lines)}")

    def _rest(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)

    def said(self) -> str:
        """All of it, of a process that has ended."""
        self._reader.join(LONG)
        return "".join(self._lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LONG)

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LONG)
        finally:
            self.process.kill()


class Server:
    """`steadfast up`, or `steadfast server` with workers of its own."""

    def __init__(self, data: Path, python: Path, command: str = "up", *options: str) -> None:
        self.data = data
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("STEADFAST_")},
            "PATH": f"{python.parent}:{os.environ['PATH']}",
        }
        self._command, self._options = command, options
        self._workers: list[Process] = []
        self._address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        """Again: at the same address."""
        argv = [program(), self._command, "--data", str(self.data), "--listen", self._address, *self._options]
        self.process = Process(argv, self.env)
        self.url = self.process.line_with("://").split()[-1]
        self._address = self.url.partition("://")[2]

    def kill(self) -> None:
        self.process.kill()

    def worker(self, name: str, *options: str) -> Process:
        """One that runs processes; its folder is that of the last one of its name."""
        folder = self.data / f"folder-{name}"
        argv = [program(), "worker", "--server", self.url, "--name", name, "--folder", str(folder), *options]
        worker = Process(argv, self.env)
        self._workers.append(worker)
        worker.line_with("connected")
        return worker

    def python_worker(self, script: Path, *arguments: str) -> Process:
        worker = Process([sys.executable, "-u", str(script), self.url, *arguments], self.env)
        self._workers.append(worker)
        worker.line_with("connected")
        return worker

    def event(self, job: str, name: str) -> dict[str, object]:
        """Waits until a job's log has it."""
        # As the client finds it: `up` has left one.
        bearer = Place.find(self.url, None).bearer
        headers = {"Accept": "text/event-stream", **({"Authorization": bearer} if bearer else {})}
        request = urllib.request.Request(f"{self.url}/v1/jobs/{job}/events", headers=headers)
        with urllib.request.urlopen(request, timeout=LONG) as stream:
            for line in stream:
                if line.startswith(b"data:"):
                    event: dict[str, object] = json.loads(line[5:])
                    if event.get("event") == name:
                        return event
        raise AssertionError(f"the job has ended without {name}")

    def stop(self) -> None:
        for worker in self._workers:
            worker.end()
        self.process.end()


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment: the wheel, what it asks for, and nothing else."""
    wheel = os.environ.get("STEADFAST_WHEEL")
    assert wheel, "STEADFAST_WHEEL names the wheel that is tested; ./test says how"
    folder = tmp_path_factory.mktemp("fresh") / "environment"
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(make, check=True, timeout=2 * LONG)
    python = folder / "bin" / "python3"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-compile", "--no-index"]
    install += ["--find-links", os.environ["STEADFAST_WHEELS"], wheel]
    subprocess.run(install, check=True, timeout=2 * LONG)
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    (Path(packages) / "sitecustomize.py").write_text(SEEDED)
    return python


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[Server]:
    """Of all tests that leave it alone."""
    server = Server(tmp_path_factory.mktemp("server"), python)
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def own_server(tmp_path: Path, python: Path) -> Iterator[Server]:
    """`steadfast up`, to be killed."""
    server = Server(tmp_path / "data", python)
    yield server
    server.stop()


@pytest.fixture
def bare_server(tmp_path: Path, python: Path) -> Iterator[Server]:
    """Without workers, and quick to give one up."""
    config = tmp_path / "steadfast.toml"
    config.write_text('[workers]\nlease = "4s"\nbeat = "200ms"\n')
    server = Server(tmp_path / "data", python, "server", "--config", str(config))
    yield server
    server.stop()
