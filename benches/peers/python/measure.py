"""The workloads of ../measure/lib.rs for peers that are used from Python; the same words, the same lines of JSON."""

import asyncio
import json
import logging
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

BACKOFF = 0.1
HOUR = 3600
PATIENCE = 240
# Jobs that are done before the clock runs, numbered apart from the others.
WARM_UP = range(1_000_000_000, 1_000_000_010)
# Every failure would be told with its trace.
logging.disable(logging.CRITICAL)
TICKS = os.sysconf("SC_CLK_TCK")


class Fail(Exception):
    """The handler shall fail."""


class Seen:
    """What the handler has seen."""

    def __init__(self, fails):
        self.fails, self.done, self.failed, self.late, self.ended = fails, 0, {}, [], {}

    def call(self, job):
        """The whole of a handler."""
        if self.fails:
            times, at = self.failed.get(job, (0, None))
            if at is not None:
                self.late.append((time.perf_counter() - at - BACKOFF) * 1e3)
            if times < self.fails:
                self.failed[job] = times + 1, time.perf_counter()
                raise Fail("fails twice")
        self.done += 1
        if end := self.ended.pop(job, None):
            end.set_result(None)
        return job

    def end_of(self, job):
        self.ended[job] = asyncio.get_running_loop().create_future()
        return self.ended[job]


async def run_all(peer, jobs_per, delayed_per, wanted):
    """`peer` has `name`, `start(folder, in_flight, seen)`, `submit`, `submit_and_wait`, `delay`, `server()`, `stop()`.
    A slow one gets one job for so many of the others."""
    jobs = int(os.environ["JOBS"]) // jobs_per
    delayed = int(os.environ["DELAYED"]) // delayed_per
    bench = Bench(peer, int(os.environ["REPEATS"]), wanted)
    await bench.rate("separate_64", 64, jobs, "called")
    await bench.rate("separate_256", 256, jobs, "called")
    await bench.rate("submit_and_wait_64", 64, jobs, "told")
    await bench.alone("one_at_a_time", min(jobs, 500))
    await bench.retries("retry_1", 1, max(1, int(os.environ["JOBS"]) // 400), "called")
    await bench.retries("retry_64", 64, jobs, "called")
    await bench.retries("retry_saturated", 64, jobs, "accepted")
    await bench.rate("delayed_256", 256, delayed, "delayed")


class Bench:
    def __init__(self, peer, repeats, wanted):
        self.peer, self.repeats, self.wanted = peer, repeats, wanted

    async def rate(self, workload, in_flight, jobs, until):
        rates, cpu, memory = [], [], []
        for _ in self.repeats_of(workload):
            async with Running(self.peer, workload, in_flight, 0) as running:
                server = self.peer.server()
                begun, before = time.perf_counter(), cpu_of(server)
                await running.submit(range(jobs), until)
                rates.append(jobs / (time.perf_counter() - begun))
                cpu.append((cpu_of(server) - before) * 1e6 / jobs)
                memory.append(memory_of(server))
            if running.stalled:
                return
        self.figure(workload, "jobs/s", jobs, rates)
        self.figure(f"{workload}_cpu", "µs/job", jobs, cpu)
        self.figure(f"{workload}_memory", "MB", jobs, memory)

    async def alone(self, workload, jobs):
        p50, p99 = [], []
        for _ in self.repeats_of(workload):
            times = []
            async with Running(self.peer, workload, 1, 0) as running:
                for job in range(jobs):
                    begun = time.perf_counter()
                    await running.submit([job], "told")
                    times.append((time.perf_counter() - begun) * 1e3)
            if running.stalled:
                return
            p50.append(centile(times, 50))
            p99.append(centile(times, 99))
        self.figure(f"{workload}_p50", "ms", jobs, p50)
        self.figure(f"{workload}_p99", "ms", jobs, p99)

    async def retries(self, workload, in_flight, jobs, until):
        p50, p99, least, took = [], [], [], []
        for _ in self.repeats_of(workload):
            async with Running(self.peer, workload, in_flight, 2) as running:
                begun = time.perf_counter()
                await running.submit(range(jobs), until)
                took.append(time.perf_counter() - begun)
            if running.stalled:
                return
            late = running.seen.late
            p50.append(centile(late, 50))
            p99.append(centile(late, 99))
            least.append(min(late))
        self.figure(f"{workload}_lateness_p50", "ms", jobs, p50)
        self.figure(f"{workload}_lateness_p99", "ms", jobs, p99)
        self.figure(f"{workload}_lateness_least", "ms", jobs, least)
        self.figure(f"{workload}_all_done", "s", jobs, took)

    def repeats_of(self, workload):
        return range(self.repeats if not self.wanted or workload in self.wanted else 0)

    def figure(self, workload, unit, jobs, values):
        if values:
            values = sorted(values)
            emit(
                peer=self.peer.name, workload=workload, unit=unit, jobs=jobs, median=values[len(values) // 2],
                low=values[0], high=values[-1], repeats=len(values),
            )  # fmt: skip


class Running:
    """A peer on an empty folder that has done its first jobs. What stalls is told, and ends this."""

    def __init__(self, peer, workload, in_flight, fails):
        self.peer, self.workload, self.in_flight, self.seen = peer, workload, in_flight, Seen(fails)
        self.stalled = False

    async def __aenter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix=f"peer-{self.peer.name}-"))
        await asyncio.wait_for(self.peer.start(self.folder, self.in_flight, self.seen), PATIENCE)
        await asyncio.wait_for(self.each(WARM_UP, "called"), PATIENCE)
        self.seen.done = 0
        self.seen.late.clear()
        return self

    async def __aexit__(self, kind, error, trace):
        if kind is TimeoutError or kind is asyncio.TimeoutError:
            self.stalled = True
            emit(peer=self.peer.name, workload=self.workload, missed=f"stalled: {self.seen.done} done after {PATIENCE} s")
        await self.peer.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.stalled

    async def submit(self, jobs, until):
        await asyncio.wait_for(self.each(jobs, until), PATIENCE)

    async def each(self, jobs, until):
        """As many tasks as are in flight submit one job after the other."""
        left = iter(jobs)

        async def go_on():
            for job in left:
                if until == "accepted":
                    await self.peer.submit(job)
                elif until == "called":
                    end = self.seen.end_of(job)
                    await self.peer.submit(job)
                    await end
                elif until == "told":
                    await self.peer.submit_and_wait(job)
                else:
                    await self.peer.delay(job)

        before = self.seen.done
        await asyncio.gather(*(go_on() for _ in range(min(self.in_flight, len(jobs)))))
        while until == "accepted" and self.seen.done - before < len(jobs):
            await asyncio.sleep(0.001)


def emit(**figure):
    print(json.dumps(figure, ensure_ascii=False), flush=True)


def centile(values, share):
    return sorted(values)[len(values) * share // 100]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tree(process):
    """A process and its children."""
    found = [process]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                pass
    return found


def cpu_of(process):
    """Seconds, of a process and its children, those that have ended too."""
    total = 0
    for one in tree(process):
        try:
            stat = Path(f"/proc/{one}/stat").read_text()
        except OSError:
            continue
        # utime, stime, cutime and cstime, counted behind the name, which may have spaces.
        total += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return total / TICKS


def memory_of(process):
    """MB, of a process and its children; what they share counts once."""
    total = 0
    for one in tree(process):
        try:
            maps = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in maps.splitlines() if line.startswith("Pss:"))
    return total * 1.024 / 1000
