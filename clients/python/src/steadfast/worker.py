"""A worker that runs functions of this program for a server's `call` steps."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from .connection import Place
from .hand import Hand
from .lease import clock
from .outcome import Function
from .session import Self, sessions

log = logging.getLogger("steadfast.worker")

Registered = TypeVar("Registered", bound=Callable[..., Any])

#: How often the clock is looked at: a machine that slept wakes with its timers late.
LOOK = 1.0
#: How long the server may take to acknowledge the last reports, and the session to end.
LAST_WAIT = 10.0
GOODBYE = 2.0


class Worker:
    """Registers functions, and runs them as a server asks.

        worker = Worker("http://127.0.0.1:7117", name="resizer")

        @worker.function("resize")
        def resize(ctx: Context, input: dict) -> dict:
            return {"width": input["width"] // 2}

        worker.run()

    A function takes the context and the step's `input`, and returns what JSON can hold. Plain functions run in
    threads, coroutines on a loop of their own.

    Args:
        server: Its address (default: STEADFAST_SERVER, or http://127.0.0.1:7117)
        name: Unique among the server's workers (default: the machine's, and the process's number)
        slots: How many attempts at once (default: twice the cores, at least 8)
        token: Of scope `worker` (default: STEADFAST_TOKEN)
        datacenter: Where it is
        labels: For steps with `labels`
        cpu, memory_bytes: Given to steps with `resources` (default: not counted)
        grace: Seconds that running functions have when the worker is told to go
        kill_grace: Seconds that one function has to notice that it is cancelled
    """

    def __init__(
        self,
        server: str | None = None,
        name: str | None = None,
        slots: int | None = None,
        *,
        token: str | None = None,
        datacenter: str | None = None,
        labels: Mapping[str, str] | None = None,
        cpu: float | None = None,
        memory_bytes: int | None = None,
        grace: float = 25.0,
        kill_grace: float = 5.0,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> None:
        self._place = Place.find(server, token, ca, cert, key, left="worker")
        if slots is not None and slots < 1:
            raise ValueError("a worker needs at least one slot")
        self._slots = slots or max(2 * (os.cpu_count() or 1), 8)
        self._self = Self(
            name=name or f"{socket.gethostname()}-python-{os.getpid()}",
            datacenter=datacenter or "",
            labels=dict(labels or {}),
            cpu=cpu or 0.0,
            memory_bytes=memory_bytes or 0,
        )
        self._grace = grace
        self._kill_grace = kill_grace
        self._functions: dict[str, Function] = {}
        self._told = 0
        self._hand: Hand | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._self.name

    @overload
    def function(self, function: Registered, /) -> Registered: ...

    @overload
    def function(self, name: str | None = None, /) -> Callable[[Registered], Registered]: ...

    def function(self, function: Any = None, /) -> Any:
        """Registers a function: `@worker.function` under its own name, `@worker.function("name")` under that."""
        if callable(function):
            self._register(getattr(function, "__name__", ""), function)
            return function

        def register(registered: Registered) -> Registered:
            self._register(function or getattr(registered, "__name__", ""), registered)
            return registered

        return register

    def _register(self, name: str, function: Function) -> None:
        if not name:
            raise ValueError("a function without a name needs one: @worker.function(\"name\")")
        if name in self._functions:
            raise ValueError(f"there is a function {name!r} already")
        if self._hand is not None:
            raise RuntimeError("functions are registered before the worker runs")
        self._functions[name] = function

    def run(self) -> None:
        """Until it is told to go: by SIGTERM or Ctrl-C, by `stop`, or by `steadfast drain`.

        Raises NotAllowed or InvalidRequest if the server does not let it in; an absent server is waited for.
        """
        asyncio.run(self.serve())

    def stop(self) -> None:
        """From any thread: what runs is cancelled, has its grace, and is reported. Again: at once."""
        with self._lock:
            self._told += 1
            hand = self._hand
        if hand is not None:
            hand.tell_from_elsewhere()

    async def serve(self) -> None:
        """The same as `run`, in a loop that is there already."""
        if not self._functions:
            raise ValueError("a worker without functions has nothing to do: register one")
        loop = asyncio.get_running_loop()
        hand = Hand(self._functions, self._slots, self._kill_grace, loop)
        with self._lock:
            if self._hand is not None:
                raise RuntimeError("this worker runs already")
            self._hand = hand
        coroutines = self._loop_of_coroutines(hand)
        signals = self._listen_to_signals(loop)
        tasks = [
            asyncio.ensure_future(sessions(hand, self._place, self._self)),
            asyncio.ensure_future(_guard(hand)),
            asyncio.ensure_future(self._leave(hand)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if tasks[2] in done:
                await asyncio.wait(tasks[:1], timeout=GOODBYE)
        finally:
            # So that `_leave` ends also if it does not hear that it is cancelled: see `session._both`.
            with self._lock:
                self._told = 2
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number in signals:
                loop.remove_signal_handler(number)
            # If we were cancelled ourselves, nobody waits for what still runs.
            hand.preempt()
            hand.abandon()
            with self._lock:
                self._hand, self._told = None, 0
            if hand.coroutines is not None and coroutines is not None:
                hand.coroutines.call_soon_threadsafe(hand.coroutines.stop)
                # One that blocks its loop is left behind.
                await asyncio.to_thread(coroutines.join, GOODBYE)

    def _loop_of_coroutines(self, hand: Hand) -> threading.Thread | None:
        """A function that blocks its loop must not keep the worker from answering the server."""
        if not any(inspect.iscoroutinefunction(function) for function in self._functions.values()):
            return None
        hand.coroutines = loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run_coroutines, args=(loop,), name="steadfast coroutines", daemon=True)
        thread.start()
        return thread

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop) -> list[int]:
        if threading.current_thread() is not threading.main_thread():
            return []
        numbers = [signal.SIGTERM, signal.SIGINT]
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        return [int(number) for number in numbers]

    async def _leave(self, hand: Hand) -> None:
        """Returns when it is time to go."""
        await self._until(hand, hand.is_drained, told=1)
        if not hand.is_drained():
            log.info("told to go: %d attempts are asked to end", len(hand.running))
            hand.preempt()
            await self._until(hand, hand.is_idle, told=2, seconds=self._grace)
            hand.abandon()
            if hand.welcomed:
                await self._until(hand, hand.is_over, told=2, seconds=LAST_WAIT)
        hand.leaving = True
        hand.tell()

    async def _until(
        self, hand: Hand, what: Callable[[], bool], *, told: int, seconds: float | None = None
    ) -> None:
        """Or for so long, or until told to stop so often."""
        end = None if seconds is None else clock() + seconds
        while self._told < told and not what():
            # What happens from here on is not missed.
            hand.moved.clear()
            left = None if end is None else end - clock()
            if left is not None and left <= 0:
                return
            try:
                await asyncio.wait_for(hand.moved.wait(), left)
            except asyncio.TimeoutError:
                return


def _run_coroutines(loop: asyncio.AbstractEventLoop) -> None:
    """Until the loop is stopped; what functions have left there is cancelled then."""
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=GOODBYE / 2))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _guard(hand: Hand) -> None:
    """Ends everything when the lease does, connected or not."""
    while True:
        left = hand.lease.left(clock())
        if left is not None and left <= 0 and not hand.is_idle():
            hand.lease_ended()
        await asyncio.sleep(LOOK if left is None or left <= 0 else min(left, LOOK))
