"""Runs one callable for an attempt. Sent with the job; needs Python and cloudpickle, and nothing of this package.

Reads `steadfast_call.pickle` beside itself: a line of JSON, then the pickled (callable, args, kwargs). Leaves the
result in $STEADFAST_OUTPUT, or what was raised in $STEADFAST_ERROR and on stderr, with exit status 1. A
callable that exits by itself has the exit status that it asked for. Where it cannot be called at all, by a Python or
cloudpickle of another version than it was pickled with, it says that the work did not start and never will.
"""

import base64
import inspect
import json
import os
import sys
import traceback

OUTPUT_MOST = 1 << 20
ERROR_MOST = 16 << 10
RAISED = "steadfast: the callable raised"
NESTED_MOST = 90


class ResultTooLarge(Exception):
    pass


class ResultNotPicklable(Exception):
    pass


class WrongVersion(Exception):
    """It cannot be called here."""


def say(kind, message, **more):
    """What the server is told of a failure: as much of it as is kept."""
    message = message.encode("utf-8", "replace").decode()
    most = len(message)
    while True:
        said = json.dumps({"type": kind[:200], "message": message[:most], **more}).encode()
        if len(said) <= ERROR_MOST:
            break
        most = most * 3 // 4
    with open(os.environ["STEADFAST_ERROR"], "wb") as file:
        file.write(said)


def is_plain(value, depth=0):
    """It comes back from JSON as it was: no tuple, no key that is not a text, no NaN, no half a pair."""
    if value is None or type(value) is bool:
        return True
    if type(value) is str:
        return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
    if type(value) is int:
        return abs(value) < 1 << 53
    if type(value) is float:
        return value == value and abs(value) != float("inf")
    if depth >= NESTED_MOST:
        return False
    if type(value) is list:
        return all(is_plain(inner, depth + 1) for inner in value)
    if type(value) is dict:
        return all(
            type(key) is str and is_plain(key) and is_plain(inner, depth + 1) for key, inner in value.items()
        )
    return False


def written(result, cloudpickle):
    """The result as JSON: plain if it can be, and pickled."""
    plain = {"json": result} if is_plain(result) else {}
    try:
        pickled = {"pickle": base64.b64encode(cloudpickle.dumps(result)).decode()}
    except Exception as error:
        if not plain:
            name = type(result).__name__
            raise ResultNotPicklable(f"the result, a {name}, cannot be pickled: {error}") from error
        pickled = {}
    forms = [form for form in ({**plain, **pickled}, plain, pickled) if form]
    sizes = []
    for form in forms:
        # In UTF-8, as the server counts it.
        text = json.dumps({"steadfast_result": 1, **form}, ensure_ascii=False, separators=(",", ":")).encode()
        if len(text) <= OUTPUT_MOST:
            return text
        sizes.append(len(text))
    raise ResultTooLarge(
        f"the result has {min(sizes)} bytes as it would be sent; at most {OUTPUT_MOST} are kept. "
        "Write it somewhere, and return where it is"
    )


def matching(about):
    """cloudpickle, if it and this Python are those that the callable was pickled with."""
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = None
    python, version = "%d.%d" % sys.version_info[:2], getattr(cloudpickle, "__version__", "none")
    if (python, version) == (about["python"], about["cloudpickle"]):
        return cloudpickle
    raise WrongVersion(
        f"the callable was pickled by Python {about['python']} with cloudpickle {about['cloudpickle']}, and the "
        f"worker's {sys.executable} is Python {python} with cloudpickle {version}: code does not move between "
        f"versions. There: pip install cloudpickle=={about['cloudpickle']}; or use Entrypoint.with_python, or labels, "
        f"to name a Python {about['python']} with it"
    )


def call(path):
    with open(path, "rb") as file:
        about = json.loads(file.readline())
        pickled = file.read()
    cloudpickle = matching(about)
    function, args, kwargs = cloudpickle.loads(pickled)
    result = function(*args, **kwargs)
    if inspect.iscoroutine(result):
        import asyncio

        result = asyncio.run(result)
    with open(os.environ["STEADFAST_OUTPUT"], "wb") as file:
        file.write(written(result, cloudpickle))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        call(os.path.join(here, "steadfast_call.pickle"))
    except SystemExit as exit:
        if isinstance(exit.code, str):
            say("SystemExit", exit.code)
        raise
    except WrongVersion as error:
        say("WrongVersion", str(error), started=False, permanent=True)
        print("steadfast:", error, file=sys.stderr)
        sys.exit(1)
    except BaseException as error:
        kind = type(error).__name__
        last = "".join(traceback.format_exception_only(type(error), error)).strip()
        say(kind, last)
        sys.stdout.flush()
        print(RAISED, kind, file=sys.stderr)
        # Without the lines of this file, where they come first.
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames or error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    main()
