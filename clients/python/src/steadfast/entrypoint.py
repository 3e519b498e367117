"""What a job runs: a command, or a callable of this program."""

from __future__ import annotations

import contextlib
import importlib.resources
import inspect
import json
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from .errors import NotPicklable, TooLarge
from .v1 import jobs_pb2 as pb

#: A request has at most 16 MiB; the rest of it is small.
LARGEST_CALL = 15 << 20
RUNNER = "steadfast_run.py"
CALL = "steadfast_call.pickle"

# cloudpickle's list of modules that go by value is the process's.
_by_value = threading.Lock()


@dataclass(frozen=True)
class Entrypoint:
    """Made by `from_command` and `from_callable`."""

    argv: tuple[str, ...]
    files: tuple[pb.AttachedFile, ...] = ()
    #: It runs a callable.
    calls: bool = False

    @classmethod
    def from_command(cls, *argv: str | Sequence[str]) -> Entrypoint:
        """A program and its arguments: `from_command("python", "-m", "job")`, or the same as one list.

        No shell reads it; for one say `from_command("sh", "-c", "…")`. It starts in the attempt's own folder.
        """
        words: list[str] = []
        for word in argv:
            if isinstance(word, str):
                words.append(word)
            else:
                words.extend(word)
        if not words or not all(isinstance(word, str) for word in words):
            raise TypeError("a command is a program and its arguments, all of them texts")
        return cls(tuple(words))

    @classmethod
    def from_callable(cls, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Entrypoint:
        """Calls `function(*args, **kwargs)` with a worker's Python, and keeps what it returns.

        It is pickled here and now, by value if it is of this program (the notebook, the script, or a
        module beside it), and so are its arguments; modules that it imports must be where it runs. The worker's
        `python3` has this Python's version, and cloudpickle.
        """
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called")
        name = getattr(function, "__qualname__", repr(function))
        try:
            with _value_of(inspect.getmodule(function)):
                pickled = cloudpickle.dumps((function, args, kwargs))
        except Exception as error:
            raise NotPicklable(
                f"{name} cannot be sent to a worker: {error}. What it uses of its surroundings (locks, open "
                "files, connections) has to be made inside of it"
            ) from error
        if len(pickled) > LARGEST_CALL:
            raise TooLarge(
                f"{name} and its arguments have {len(pickled)} bytes when pickled, and at most "
                f"{LARGEST_CALL} can be sent: put the data where workers can read it, and send its place"
            )
        about = {"python": "%d.%d" % sys.version_info[:2], "name": name}
        call = json.dumps(about).encode() + b"\n" + pickled
        runner = importlib.resources.files(__package__).joinpath("runner.py").read_bytes()
        files = (
            pb.AttachedFile(path=RUNNER, content=runner),
            pb.AttachedFile(path=CALL, content=call),
        )
        return cls(("python3", RUNNER), files, calls=True)

    def with_python(self, python: str) -> Entrypoint:
        """The same callable, run by another Python of the worker: a name in its PATH, or a path."""
        if not self.calls:
            raise TypeError("a command names its program itself")
        return replace(self, argv=(python, *self.argv[1:]))


@contextlib.contextmanager
def _value_of(module: ModuleType | None) -> Iterator[None]:
    """While a module of this program is pickled by value: workers do not have it."""
    if module is None or module.__name__ not in sys.modules or _is_installed(module):
        yield
        return
    with _by_value:
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _is_installed(module: ModuleType) -> bool:
    """It is of Python itself or of a package: importable wherever that is installed too."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__ == "__main__":
        return True
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += site.getsitepackages() + [site.getusersitepackages()]
    path = Path(file).resolve()
    return any(path.is_relative_to(Path(place).resolve()) for place in places if place)
