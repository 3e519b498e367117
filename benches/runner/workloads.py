"""The workloads, how each figure of them is called for people, and what it shall reach.

A target is a limit from below or above: a number, a multiple of a peer's figure of the same run, of the figure of an empty
store, or of the disk's.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """What the benchmark is called with; `quick` only shows that it works. `peers`: what peers/run calls the same."""

    name: str
    bench: str
    full: str
    quick: str
    about: str
    peers: tuple = ()


def listed(*workloads):
    return {it.name: it for it in workloads}


WORKLOADS = listed(
    Workload("one_at_a_time", "jobs", "alone 500", "alone 50", "one job after the other, submission to result", ("one_at_a_time",)),
    Workload("separate_64", "jobs", "separate 64 20000", "separate 64 500", "one-call jobs, 64 in flight", ("separate_64",)),
    Workload("separate_256", "jobs", "separate 256 20000", "separate 256 500", "one-call jobs, 256 in flight", ("separate_256",)),
    Workload("submit_and_wait_64", "jobs", "wait 64 20000", "wait 64 500", "the same until the client has the result", ("submit_and_wait_64",)),
    Workload("bulk", "jobs", "bulk 50000", "bulk 2000", "one-call jobs handed over at once"),
    Workload("functions_64", "functions", "64 20000", "64 2000", "items of one fan-out, 64 in flight"),
    Workload("functions_256", "functions", "256 20000", "256 2000", "items of one fan-out, 256 in flight"),
    Workload("fleet_1", "fleet", "1 256 100000 10", "1 256 2000 1", "a fan-out over 1 worker with 256 slots"),
    Workload("fleet_1000", "fleet", "1000 1 100000 10", "1000 1 2000 1", "a fan-out over 1,000 workers with 1 slot"),
    Workload("retry_1", "jobs", "retries 1 50", "retries 1 5", "each job fails twice, one at a time", ("retry_1",)),
    Workload("retry_saturated", "jobs", "saturated 10000", "saturated 200", "each job fails twice, submitted as fast as accepted", ("retry_saturated",)),
    Workload("retry_half", "jobs", "half 5000", "half 200", "each job fails twice, 1,024 in flight; then at half of that rate"),
    Workload("dag", "jobs", "dag 1000", "dag 200", "one job of 1,000 calls in layers of 50, each needs two"),
    Workload("chain", "jobs", "chain 1000", "chain 50", "one job of 1,000 calls, each needs the one before"),
    Workload("recovery", "jobs", "recovery 10000", "recovery 500", "kill -9 with 10,000 jobs open"),
    Workload("delayed", "jobs", "delayed 1000000", "delayed 5000", "1,000,000 jobs delayed an hour, in bulk; kill -9 with them", ("delayed_256",)),
    Workload("waiting", "waiting", "1000000", "5000", "a server with 1,000,000 jobs that wait; 10,000 fall due while it is down"),
    Workload("processes", "run", "1000", "100", "1,000 × true beside raw spawn", ("raw_1", "raw_2", "xargs_2", "task_spooler_2")),
    Workload("http", "http", "", "calls 500", "10,000 calls of a web service beside a bare client; an outage"),
    Workload("up", "fleet", "up 10", "up 1", "an idle server with its worker"),
    Workload("postgres_1", "jobs", "servers 1 64 20000", "servers 1 64 500", "the separate jobs on PostgreSQL, one server", ("separate_64",)),
    Workload("postgres_2", "jobs", "servers 2 64 20000", "servers 2 64 500", "the same on two servers"),
    Workload("postgres_4", "jobs", "servers 4 64 20000", "servers 4 64 500", "the same on four servers"),
    Workload("postgres_fan_out", "jobs", "fan_out 256 20000", "fan_out 256 1000", "items of one fan-out on PostgreSQL, 256 in flight"),
    Workload("pages", "jobs", "pages 1000 20000", "pages 20 500", "the separate jobs beside no, one and 1,000 open pages of the dashboard"),
    Workload("history", "jobs", "history 1000000 20000", "history 2000 300", "the separate jobs again behind 1,000,000 finished ones"),
)

# What a figure is called in peers/run, where that is not its own name.
PEERS_NAME = {
    ("bulk", "accepted"): "separate_256",
    ("bulk", "rate"): "separate_256",
    ("bulk", "cpu"): "separate_256_cpu",
    ("functions_64", "rate"): "separate_64",
    ("functions_256", "rate"): "separate_256",
    ("delayed", "rate"): "delayed_256",
    ("delayed", "cpu"): "delayed_256_cpu",
    ("delayed", "memory"): "delayed_256_memory",
}


def peers_names(workload, metric):
    """A peer's figure or figures that this one stands beside."""
    if workload == "processes":
        return {"rate": ("xargs_2", "task_spooler_2")}.get(metric, ())
    if name := PEERS_NAME.get((workload, metric)):
        return (name,)
    return (workload if metric == "rate" else f"{workload}_{metric}",)


@dataclass(frozen=True)
class Target:
    """`plus` + `times` × `of`, from below if `least`. `of`: a peer, `empty store`, `fdatasync`, or nothing."""

    least: bool
    plus: float = 0.0
    times: float = 0.0
    of: str = ""

    def __str__(self):
        parts = [f"{self.times:g} × {self.of}"] if self.of else []
        if self.plus or not parts:
            parts.append(f"{self.plus:,g}")
        return ("≥ " if self.least else "≤ ") + " + ".join(parts)

    def is_met(self, value, base):
        """`base`: the figure of what it is a multiple of; without one nobody knows."""
        if self.of and base is None:
            return None
        limit = self.plus + self.times * (base or 0.0)
        return value >= limit if self.least else value <= limit


def at_least(plus=0.0, times=0.0, of=""):
    return Target(True, plus, times, of)


def at_most(plus=0.0, times=0.0, of=""):
    return Target(False, plus, times, of)


TARGETS = {
    ("probe", "verdict"): at_most(200),
    ("one_at_a_time", "p50"): at_most(0.5, times=4, of="fdatasync"),
    ("one_at_a_time", "p99"): at_most(times=0.5, of="restate"),
    ("separate_64", "rate"): at_least(times=4, of="restate"),
    ("separate_256", "rate"): at_least(times=3.5, of="restate"),
    ("submit_and_wait_64", "rate"): at_least(times=3.5, of="restate"),
    ("bulk", "accepted"): at_least(times=10, of="restate"),
    ("bulk", "rate"): at_least(times=7, of="restate"),
    ("separate_64", "cpu"): at_most(90),
    ("separate_256", "cpu"): at_most(90),
    ("bulk", "cpu"): at_most(90),
    # With few jobs, the write-ahead log is most of what is stored.
    ("history", "stored"): at_most(1200),
    ("functions_64", "rate"): at_least(times=10, of="restate"),
    ("functions_256", "rate"): at_least(times=10, of="restate"),
    ("fleet_1", "rate"): at_least(40_000),
    ("fleet_1", "losses"): at_most(0),
    ("fleet_1000", "losses"): at_most(0),
    ("retry_saturated", "lateness_p99"): at_most(25),
    ("retry_saturated", "done_after_last"): at_most(1.5),
    ("retry_saturated", "early"): at_most(0),
    ("retry_1024", "lateness_p99"): at_most(25),
    ("retry_1024", "early"): at_most(0),
    ("retry_half", "lateness_p99"): at_most(5),
    ("retry_half", "early"): at_most(0),
    ("retry_1", "early"): at_most(0),
    ("dag", "time"): at_most(0.3),
    ("recovery", "first_call"): at_most(0.3),
    ("recovery_delayed", "first_call"): at_most(0.3),
    ("delayed", "rate"): at_least(40_000),
    ("delayed", "memory"): at_most(300),
    ("waiting", "ready"): at_most(0.3),
    ("waiting", "memory"): at_most(300),
    ("waiting", "idle_cpu"): at_most(0.5),
    ("processes", "ratio"): at_least(0.85),
    ("http", "ratio"): at_least(0.7),
    ("http", "memory"): at_most(100),
    ("http_5ms", "ratio"): at_least(0.7),
    ("http_5ms", "memory"): at_most(100),
    ("up", "ready"): at_most(0.2),
    ("up", "memory"): at_most(40),
    ("up", "idle_cpu"): at_most(0.5),
    ("one_at_a_time_history", "p50"): at_most(times=1.3, of="empty store"),
    ("separate_64_history", "cpu"): at_most(times=1.3, of="empty store"),
    ("separate_256_history", "cpu"): at_most(times=1.3, of="empty store"),
    ("submit_and_wait_64_history", "cpu"): at_most(times=1.3, of="empty store"),
    ("bulk_history", "cpu"): at_most(times=1.3, of="empty store"),
    ("queries_history", "list_p99"): at_most(10),
    ("queries_history", "status_p99"): at_most(10),
    ("queries_history", "keyed_p99"): at_most(10),
}
