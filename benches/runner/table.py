"""The figures as tables that can be read on a terminal and pasted into a page."""

# What a rate costs the server: columns beside it.
COSTS = ("cpu", "memory", "stored", "written")
RATES = ("workload", "rate, median (range)", "targets", "ours / theirs", "CPU µs", "memory MB", "stored B", "written B")
OTHERS = ("workload", "", "median (range)", "unit", "target", "ours / theirs")
MARKS = {True: "✓ ", False: "✗ ", None: ""}


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(figure):
    text = number(figure["median"])
    if figure["repeats"] > 1:
        text += f" ({number(figure['min'])}–{number(figure['max'])})"
    return text


def target(figure):
    return MARKS[figure["met"]] + figure["target"] if figure["target"] else ""


def ratios(figure):
    of = ((peer, theirs) for peer, theirs in figure["peers"].items() if theirs)
    return ", ".join(f"{number(figure['median'] / theirs)} × {peer}" for peer, theirs in of)


def rate(figure, costs):
    """A line of the first table: a rate, what each one costs, and the targets of all of that."""
    targets = [target(figure), *(f"{target(it)} {it['metric']}" for it in costs.values() if it["target"])]
    cells = [spread(costs[it]) if it in costs else "" for it in COSTS]
    return figure["workload"], f"{spread(figure)} {figure['unit']}", ", ".join(filter(None, targets)), ratios(figure), *cells


def other(figure):
    return figure["workload"], figure["metric"], spread(figure), figure["unit"], target(figure), ratios(figure)


def tables(figures):
    """Rates with what they cost, and all the rest."""
    by = {(it["workload"], it["metric"]): it for it in figures}
    costs = {
        workload: {cost: by[workload, cost] for cost in COSTS if (workload, cost) in by}
        for workload, metric in by
        if metric == "rate"
    }
    rates = [rate(by[workload, "rate"], costs[workload]) for workload in costs]
    others = [other(it) for it in figures if it["workload"] not in costs or it["metric"] not in ("rate", *COSTS)]
    return "\n\n".join(table(head, lines) for head, lines in ((OTHERS, others), (RATES, rates)) if lines)


def table(head, lines):
    lines = [head, *lines]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines)


def heading(machine, peers):
    text = (
        f"{machine['date']}, commit {machine['commit']}: {machine['cores']} × {machine['cpu']}, {machine['memory_gib']} GiB, "
        f"load {machine['load']} before"
    )
    if peers.figures:
        text += "\npeers: of this run" if peers.are_of_this_run else "\npeers: of an earlier run, so the ratios say little"
    if peers.skipped:
        text += f"\npeers skipped: {', '.join(sorted(peers.skipped))}"
    return text


def missed(figures):
    """A line for each target that was not reached."""
    for it in figures:
        if it["met"] is False:
            yield f"missed: {it['workload']} {it['metric']}: {spread(it)} {it['unit']}, target {it['target']}"
