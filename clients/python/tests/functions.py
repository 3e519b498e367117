"""A worker in Python, as somebody would write it. Its tests tell it what to do by a job's input.

    python functions.py SERVER NAME [SLOTS]
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from steadfast import Context, Defer, PermanentError, RetryAfter, Worker

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
server, name = sys.argv[1], sys.argv[2]
worker = Worker(server, name=name, slots=int(sys.argv[3]) if len(sys.argv) > 3 else 4, kill_grace=0.2)


@worker.function
def double(ctx: Context, input: dict[str, Any]) -> dict[str, Any]:
    ctx.log("doubling", input["number"])
    return {"number": 2 * input["number"], "item": ctx.item, "step": ctx.step, "attempt": ctx.attempt}


@worker.function
def wordy(ctx: Context, input: Any) -> None:
    for _ in range(6):
        ctx.log("w" * (1 << 20))


@worker.function
def repeat(ctx: Context, input: dict[str, Any]) -> str:
    ctx.heartbeat(input["text"] * 20_000)
    return str(input["text"] * 300_000)


@worker.function
def key(ctx: Context, input: Any) -> list[str]:
    """That of its first attempt, and of its second."""
    if ctx.attempt == 1:
        ctx.heartbeat(ctx.idempotency_key)
        raise RuntimeError("again")
    return [ctx.previous_progress, ctx.idempotency_key]


@worker.function("later")
async def later(ctx: Context, input: float) -> str:
    await asyncio.sleep(input)
    return f"{ctx.function} on {ctx.attempt}"


@worker.function
def fail(ctx: Context, input: dict[str, Any]) -> int:
    if ctx.attempt > input.get("times", 1):
        return ctx.attempt
    match input["how"]:
        case "permanent":
            raise PermanentError("never again") from ValueError("cause")
        case "retry_after":
            raise RetryAfter(0.05)
        case "defer":
            raise Defer(0.05)
        case "exit":
            sys.exit(3)
        case "not_json":
            return {1, 2}  # type: ignore[return-value]
        case "half":
            return "half a pair: \ud83d"  # type: ignore[return-value]
        case "large":
            return "x" * (2 << 20)  # type: ignore[return-value]
        case _:
            raise KeyError("who?")


@worker.function
def resume(ctx: Context, input: dict[str, str]) -> Any:
    """Goes as far as its second row, waits to be killed, and goes on from there."""
    if ctx.previous_progress is None:
        for row in range(3):
            ctx.heartbeat({"row": row})
        Path(input["ready"]).write_text("ready")
        ctx.wait_cancelled()
        raise RuntimeError("killed by nobody")
    ctx.heartbeat({"row": 9})
    return {"from": ctx.previous_progress, "attempt": ctx.attempt}


@worker.function
def stubborn(ctx: Context, input: dict[str, str]) -> str:
    """Does nothing but wait to be told that nobody waits for it."""
    if ctx.attempt > 1:
        return "at last"
    Path(input["ready"]).write_text("ready")
    ctx.wait_cancelled()
    with open(input["ended"], "w") as ended:
        ended.write("cancelled" if ctx.cancelled else "not")
    return "too late"


@worker.function
async def patient(ctx: Context, input: dict[str, str]) -> str:
    if ctx.attempt > 1:
        return "at last"
    Path(input["ready"]).write_text("ready")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        Path(input["ended"]).write_text("cancelled")
        raise
    return "never"


worker.run()
print("left")
