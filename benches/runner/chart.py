"""The rates as horizontal bars beside those of the peers, drawn as SVG; it follows the reader's light or dark setting."""

import math
from html import escape

from .table import number

# Of the chart's groups: the figure, and what it is called there.
GROUPS = (
    ("separate_64", "rate", "Separate jobs, 64 in flight"),
    ("separate_256", "rate", "Separate jobs, 256 in flight"),
    ("submit_and_wait_64", "rate", "Submit and wait for the result, 64 in flight"),
    ("bulk", "rate", "Handed over in bulk, until done", "256 in flight, one by one"),
    ("delayed", "rate", "Delayed an hour, until accepted, in bulk", "256 in flight, one by one"),
    ("functions_256", "rate", "Items of one fan-out, 256 in flight", "separate jobs"),
    ("http", "rate", "Calls of a web service, 64 at once"),
    ("processes", "rate", "Processes, 1,000 × true"),
)
# What a figure of ours also stands beside: the bare thing.
BARE = {"processes": ("raw", "raw spawn"), "http": ("bare", "a bare client")}
# As they write themselves.
NAMES = {"restate": "Restate", "dbos": "DBOS", "temporal": "Temporal"}

WIDTH, LEFT, RIGHT, TOP = 860, 140, 150, 100
BAR, GAP, TITLE, SPACE = 16, 4, 22, 14
# More than this between the largest and the smallest, and the scale is logarithmic.
LINEAR = 20

STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .group { font-weight: 600; }
  .quiet { fill: #59636e; }
  .paper { fill: #ffffff; }
  .line { stroke: #d1d9e0; }
  .ours { fill: #1a7f5a; }
  .theirs { fill: #9aa6b2; }
  .bare { fill: none; stroke: #9aa6b2; }
  .value { stroke: #ffffff; stroke-width: 4; paint-order: stroke; }
  .range { stroke: #1f2328; stroke-opacity: 0.65; stroke-width: 1.5; }
  .end { text-anchor: end; }
  .middle { text-anchor: middle; }
"""
DARK = """
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .paper { fill: #0d1117; }
  .line { stroke: #30363d; }
  .ours { fill: #3fb984; }
  .theirs { fill: #5c6773; }
  .bare { stroke: #7d8894; }
  .value { stroke: #0d1117; }
  .range { stroke: #e6edf3; }
"""


def groups(figures):
    """Title and bars of each group that was measured: name, class, median, least, most."""
    found = {(it["workload"], it["metric"]): it for it in figures.all()}
    for workload, metric, title, *note in GROUPS:
        if not (ours := found.get((workload, metric))):
            continue
        bars = [("Steadfast", "ours", ours["median"], ours["min"], ours["max"])]
        if bare := found.get((workload, BARE.get(workload, ("", ""))[0])):
            bars.append((BARE[workload][1], "bare", bare["median"], bare["min"], bare["max"]))
        theirs = figures.beside((workload, metric))
        bars += sorted((label(peer, it) for peer, it in theirs), key=lambda bar: -bar[2])
        yield title, f"peers: {note[0]}" if note and theirs else "", bars


def label(peer, it):
    is_program = peer == "processes"
    name = it["workload"].rsplit("_", 1)[0].replace("_", "-") if is_program else f"{NAMES.get(peer, peer)} {it['version']}"
    return name, "theirs", it["median"], it["low"], it["high"]


class Scale:
    """Where a rate is on the chart."""

    def __init__(self, values):
        least, most = min(values), max(values)
        self.is_log = most / least > LINEAR
        if self.is_log:
            # The shortest bar shall be seen.
            self.low = math.floor(math.log10(least / 1.5))
            self.high = math.log10(most)
            self.ticks = [10**power for power in range(self.low, math.floor(self.high) + 1)]
        else:
            step = 10 ** math.floor(math.log10(most))
            step = step if most / step >= 4 else step / 2 if most / step >= 2 else step / 5
            self.low, self.high = 0, most
            self.ticks = [step * n for n in range(math.floor(most / step) + 1)]

    def x(self, value):
        at = math.log10(value) if self.is_log else value
        return LEFT + (at - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)


def bar(y, scale, ours, name, kind, median, least, most):
    middle, end = y + BAR / 2, scale.x(median)
    yield f'<text class="end{"" if kind == "ours" else " quiet"}" x="{LEFT - 8}" y="{middle + 4}">{escape(name)}</text>'
    yield f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(end - LEFT, 1):.1f}" height="{BAR}" rx="2"/>'
    if most > least:
        yield f'<path class="range" fill="none" d="M{scale.x(least):.1f} {middle}H{scale.x(most):.1f}"/>'
    beyond = max(end, scale.x(most)) + 6
    times = "" if kind == "ours" else f'<tspan class="quiet" dx="8">{number(ours / median)} ×</tspan>'
    yield f'<text class="value" x="{beyond:.1f}" y="{middle + 4}">{number(median)}/s{times}</text>'


def axis(scale, bottom):
    for tick in scale.ticks:
        x = f"{scale.x(tick):.1f}"
        yield f'<path class="line" d="M{x} {TOP - 6}V{bottom}"/>'
        yield f'<text class="quiet middle" x="{x}" y="{bottom + 16}">{tick:,.0f}</text>'


def chart(figures):
    """The SVG, or nothing where no rate was measured."""
    drawn = list(groups(figures))
    values = [value for _, _, bars in drawn for bar in bars for value in bar[2:] if value > 0]
    if not values:
        return None
    scale = Scale(values)
    parts, y = [], TOP
    for title, note, bars in drawn:
        beside = f' <tspan class="quiet" font-weight="normal">({escape(note)})</tspan>' if note else ""
        parts.append(f'<text class="group" x="{LEFT}" y="{y + 13}">{escape(title)}{beside}</text>')
        y += TITLE
        for it in bars:
            parts += bar(y, scale, bars[0][2], *it)
            y += BAR + GAP
        y += SPACE
    height = y + 56
    return "\n".join([*head(figures, scale, height), *axis(scale, y - 4), *parts, *foot(figures, height), "</svg>\n"])


def head(figures, scale, height):
    kind = "logarithmic" if scale.is_log else "linear"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    yield "<title>Jobs a second: Steadfast beside other systems</title>"
    yield f"<style>{STYLE}  @media (prefers-color-scheme: dark) {{{DARK}  }}\n</style>"
    yield f'<rect class="paper" width="{WIDTH}" height="{height}"/>'
    yield '<text class="title" x="24" y="34">How many a second</text>'
    about = f"Medians, with a line from the least to the most, on a {kind} scale. Every acknowledgement of Steadfast is synced to disk."
    yield f'<text class="quiet" x="24" y="56">{about}</text>'
    yield '<text class="quiet" x="24" y="74">Beside a peer: how many times as many Steadfast does.</text>'


def foot(figures, height):
    it = figures.machine
    when = "" if figures.peers.are_of_this_run or not figures.peers.figures else "; the peers at another time"
    small = "; small sizes, which say nothing" if figures.is_quick else ""
    text = f"{it['cores']} × {it['cpu']}, {it['date'][:10]}, {it['commit']}{when}{small}"
    yield f'<text class="quiet" x="24" y="{height - 12}">{escape(text)}</text>'
