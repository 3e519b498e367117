"""What a job runs: a command, or a callable of this program."""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import json
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import EXTENSION_SUFFIXES
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

        It is pickled here and now with its arguments, and by value with all that they use of this program (the
        notebook, the script, and modules beside it); packages that are installed must be where it runs, too. The
        worker's `python3` has this Python's version, and this cloudpickle's.
        """
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called")
        name = getattr(function, "__qualname__", repr(function))
        try:
            with _ours_by_value():
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
        # Held against the worker's before anything of it is read.
        versions = {"python": "%d.%d" % sys.version_info[:2], "cloudpickle": cloudpickle.__version__}
        about = {**versions, "name": name}
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
def _ours_by_value() -> Iterator[None]:
    """While the modules of this program are pickled by value: workers do not have them."""
    with _by_value:
        already = cloudpickle.list_registry_pickle_by_value()
        ours = {module.__name__: module for module in list(sys.modules.values()) if _is_ours(module)}
        # One may have another name than the one that it is found by.
        added = [ours[name] for name in ours.keys() & sys.modules.keys() - already]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _is_ours(module: object) -> bool:
    """A module of the user's, in Python. `__main__` goes by value anyway."""
    if not isinstance(module, ModuleType):
        return False
    # Not by getattr: a module may import more when it is asked for what it has not.
    name, file = vars(module).get("__name__"), vars(module).get("__file__")
    if not isinstance(name, str) or not isinstance(file, str):
        return False
    if name == "__main__" or name.partition(".")[0] == __package__:
        return False
    return not file.endswith(tuple(EXTENSION_SUFFIXES)) and not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    """It is of Python itself or of a package: importable wherever that is installed too."""
    path = Path(file)
    real = path.resolve()
    # Also of another environment that PYTHONPATH names, and where installers leave links to files elsewhere.
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts + real.parts):
        return True
    return any(real.is_relative_to(place) for place in _places())


@functools.cache
def _places() -> list[Path]:
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += site.getsitepackages() + [site.getusersitepackages()]
    return [Path(place).resolve() for place in places if place]
