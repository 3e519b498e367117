"""What was measured: values by workload and metric, the machine, and what the peers reached."""

import datetime
import json
import os
import statistics
import subprocess
from pathlib import Path

from .workloads import TARGETS, peers_names


class Figures:
    """The values of this run, in the order in which they came."""

    def __init__(self, peers, machine, is_quick):
        self.values, self.units, self.probes = {}, {}, {}
        self.peers, self.machine, self.is_quick = peers, machine, is_quick

    def add(self, figure, probes=None):
        key = figure["workload"], figure["metric"]
        self.values.setdefault(key, []).append(figure["value"])
        self.units[key] = figure["unit"]
        if probes is not None:
            self.probes[key] = probes

    def median(self, key):
        return statistics.median(self.values[key]) if key in self.values else None

    def base(self, key, of):
        """The figure that a target is a multiple of."""
        workload, metric = key
        if of == "fdatasync":
            return self.median((workload, "fdatasync_p50"))
        if of == "empty store":
            return self.median((workload.removesuffix("_history"), metric))
        return next((theirs["median"] for peer, theirs in self.beside(key) if peer == of), None)

    def beside(self, key):
        """The peers that have such a figure, and theirs."""
        return [found for name in peers_names(*key) for found in self.peers.figures_of(name)]

    def all(self):
        """An object for each figure."""
        return [self.object(key) for key in self.values]

    def object(self, key):
        values, target = self.values[key], TARGETS.get(key)
        median = self.median(key)
        # Small sizes have no target.
        is_judged = target and not self.is_quick
        met = target.is_met(median, self.base(key, target.of)) if is_judged else None
        return {
            "workload": key[0],
            "metric": key[1],
            "unit": self.units[key],
            "median": median,
            "min": min(values),
            "max": max(values),
            "repeats": len(values),
            "quick": self.is_quick,
            "values": values,
            "target": str(target) if target else None,
            "met": met,
            "peers": {named(peer, theirs): theirs["median"] for peer, theirs in self.beside(key)},
            "peers_are_of_this_run": self.peers.are_of_this_run,
            "probes": self.probes.get(key, {}),
            "machine": self.machine,
        }

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(it, ensure_ascii=False) for it in self.all())
        path.write_text(f"[\n{lines}\n]\n")


def named(peer, figure):
    """Processes are measured by one peer that is several programs."""
    return figure["workload"].rsplit("_", 1)[0] if peer == "processes" else peer


class Peers:
    """The figures of peers/run. Those of another run are shown as such, unless this run has measured peers itself."""

    def __init__(self, folder, wanted):
        self.command, self.results, self.wanted = folder / "run", folder / "target/results.json", wanted
        self.are_of_this_run = bool(wanted)
        self.skipped, self.figures = set(), {}
        if self.results.exists() and not self.are_of_this_run:
            self.figures = self.read()

    def read(self):
        lines = [json.loads(line) for line in self.results.read_text().splitlines()]
        return {(it["peer"], it["workload"]): it for it in lines if "median" in it}

    def figures_of(self, name):
        return [(peer, it) for (peer, workload), it in self.figures.items() if workload == name]

    def install(self):
        """What is missing, before anything is measured; no workload is called `nothing`."""
        self.call(self.wanted, ("nothing",), [])

    def measure(self, names, options):
        """Puts the peers through these workloads of theirs, but for those that were skipped before."""
        are_programs = "raw_1" in names
        peers = [it for it in self.wanted if it not in self.skipped and (it == "processes") == are_programs]
        if peers:
            self.call(peers, names, options)

    def call(self, peers, names, options):
        only = [word for name in names for word in ("--only", name)]
        process = subprocess.Popen([self.command, *options, *only, *peers], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            name, told, _ = line.partition(": skipped: ")
            if told and name in peers:
                self.skipped.add(name)
            if told or ": ended with" in line:
                print(line.strip(), flush=True)
        process.wait()
        measured = set(peers) - self.skipped
        if self.results.exists():
            self.figures.update({key: it for key, it in self.read().items() if key[0] in measured and key[1].startswith(names)})


def machine(root):
    model = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    git = ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {
        "cores": os.cpu_count(),
        "cpu": model[0] if model else os.uname().machine,
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": os.uname().release,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "load": round(os.getloadavg()[0], 2),
    }
