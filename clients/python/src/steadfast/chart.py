"""Attempts over time, as a picture for notebooks and as text. Plain SVG: nothing has to be installed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .words import inert

if TYPE_CHECKING:
    from .status import JobStatus

COLOURS = {
    "succeeded": "#2e7d32",
    "failed": "#c62828",
    "not_completed": "#c62828",
    "timed_out": "#ef6c00",
    "worker_lost": "#6a1b9a",
    "killed": "#616161",
    "running": "#1565c0",
}
WIDTH, LEFT, RIGHT, ROW = 720, 90, 190, 22


class Chart:
    """Shown by a notebook as a picture, printed as text."""

    def __init__(self, svg: str, text: str) -> None:
        self.svg = svg
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self.svg


def attempts(status: JobStatus) -> Chart:
    """A bar for each attempt; the gaps between them are what the job waited."""
    shown = [attempt for attempt in status.attempts if attempt.started_at_ms]
    title = f"{inert(status.name)}: {status.state_name}, {len(shown)} attempts"
    begin = min((a.started_at_ms for a in shown), default=0)
    ends = [a.finished_at_ms or a.started_at_ms for a in shown]
    span = max(max(ends, default=0) - begin, 1)
    scale = (WIDTH - LEFT - RIGHT) / span
    height = ROW * (len(shown) + 2)
    rows, lines = [], [title]
    for row, attempt in enumerate(shown):
        y = ROW * (row + 1)
        start = attempt.started_at_ms - begin
        took = max((attempt.finished_at_ms or attempt.started_at_ms) - attempt.started_at_ms, 0)
        colour = COLOURS.get(attempt.outcome, "#616161")
        what = inert(attempt.error) or attempt.outcome
        short = what if len(what) <= 30 else what[:29] + "…"
        name = f"attempt {attempt.attempt_id + 1}"
        x, wide = LEFT + start * scale, max(took * scale, 3)
        rows.append(
            f"<g><title>{escape(f'{name} on {attempt.worker_id}: {what}, {took} ms')}</title>"
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{name}</text>'
            f'<rect x="{x:.1f}" y="{y + 3}" width="{wide:.1f}" height="{ROW - 8}" rx="2" fill="{colour}"/>'
            f'<text x="{x + wide + 6:.1f}" y="{y + 14}">{escape(short)}</text></g>'
        )
        lines.append(f"  {name:<11} +{start / 1000:.3f}s  {took / 1000:.3f}s  {what}")
    end = f"{span / 1000:.1f} s"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="currentColor" role="img">'
        f'<text x="{LEFT}" y="14" font-weight="bold">{escape(title)}</text>'
        + "".join(rows)
        + f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height - ROW + 2}" y2="{height - ROW + 2}" '
        f'stroke="currentColor" stroke-opacity="0.4"/>'
        f'<text x="{LEFT}" y="{height - 5}">0 s</text>'
        f'<text x="{WIDTH - RIGHT}" y="{height - 5}" text-anchor="end">{end}</text></svg>'
    )
    return Chart(svg, "\n".join(lines))
