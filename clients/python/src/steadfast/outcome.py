"""How a function ended, as the server is told: facts, never decisions."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from typing import Any

from .context import Context
from .durations import milliseconds
from .errors import Defer, PermanentError, RetryAfter
from .v1 import workers_pb2 as pb
from .words import as_json

Function = Callable[[Context, Any], Any]

MESSAGE_MOST = 16 << 10


def lost(started: bool, why: str) -> pb.Report:
    return pb.Report(lost=pb.Lost(started=started, why=why))


def not_completed(kind: str, message: str, permanent: bool = False) -> pb.Failed:
    return pb.Failed(
        kind=pb.Failed.KIND_NOT_COMPLETED,
        permanent=permanent,
        error_kind=kind,
        error_message=message,
    )


async def awaited(function: Function, context: Context, value: Any) -> pb.Report:
    try:
        return _succeeded(await function(context, value), context)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return _failed(error, context)


def said(done: asyncio.Task[pb.Report]) -> pb.Report:
    """Of a coroutine that may have been cancelled."""
    try:
        return done.result()
    except BaseException as error:
        return _failed(error)


def called(function: Function, context: Context, value: Any) -> pb.Report:
    try:
        result = function(context, value)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return _succeeded(result, context)
    except BaseException as error:
        return _failed(error, context)


def _succeeded(result: Any, context: Context) -> pb.Report:
    try:
        text = "" if result is None else as_json(result)
    except (TypeError, ValueError, RecursionError) as error:
        return pb.Report(failed=not_completed("output_invalid", f"the result is not JSON: {error}"))
    if len(text.encode()) > context._output_most:
        message = f"the output is larger than {context._output_most} bytes"
        return pb.Report(failed=not_completed("output_too_large", message))
    return pb.Report(succeeded=pb.Succeeded(output_json=text))


def _failed(error: BaseException, context: Context | None = None) -> pb.Report:
    """Never raises: an attempt without an end would keep its slot."""
    try:
        if context is not None and not isinstance(error, Defer):
            context._write("".join(traceback.format_exception(error)))
        return _handler_failed(error)
    except BaseException as wrong:
        # A class of somebody's own: a RetryAfter without seconds, a text that cannot be made.
        what = "".join(traceback.format_exception_only(wrong)).strip()
        message = f"what was raised cannot be reported: {what}"
        return pb.Report(failed=_says(error, type(error).__name__, message))


def _handler_failed(error: BaseException) -> pb.Report:
    # What a PermanentError was raised from says more than that it is permanent.
    cause = error.__cause__ if isinstance(error, PermanentError) else None
    kind = type(cause or error).__name__
    message = "".join(traceback.format_exception_only(error)).strip()
    own = isinstance(error, PermanentError | RetryAfter | Defer)
    failed = _says(error, kind, str(error) if own else message)
    if isinstance(error, RetryAfter):
        failed.retry_after_ms = milliseconds(error.seconds, "seconds")
    if isinstance(error, Defer):
        failed.defer_ms = milliseconds(error.seconds, "seconds")
    return pb.Report(failed=failed)


def _says(error: BaseException, kind: str, message: str) -> pb.Failed:
    """As much of it as is kept."""
    return pb.Failed(
        kind=pb.Failed.KIND_HANDLER_FAILED,
        permanent=isinstance(error, PermanentError),
        error_kind=_text(kind, 200),
        error_message=_text(message, MESSAGE_MOST),
    )


def _text(text: str, most: int) -> str:
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
