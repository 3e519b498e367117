"""Why a job is where it is, for people: as text and for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

from .words import inert


class Explanation:
    """What `GET /v1/jobs/{id}/explain` tells. `data` is all of it."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        return inert(self.data["job"]["sentence"])

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """Each verdict, with the accounts before and after it."""
        return list(self.data["verdicts"])

    def __str__(self) -> str:
        job = self.data["job"]
        lines = [f"{job['name']}  {job['id']}", self.sentence]
        lines += [f"  {step['name']}: {inert(step['sentence'])}" for step in self.data["steps"]]
        if self.decisions:
            lines += ["", "decisions"]
            for verdict in self.decisions:
                lines.append(f"  {_which(verdict)}: {_decided(verdict)}")
                lines += [f"      {more}" for more in _because(verdict)]
        if self.data["waiting"]:
            lines += ["", "now"]
            lines += [f"  {_waits(waiting)}" for waiting in self.data["waiting"]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(_which(verdict))}</td><td><b>{escape(_decided(verdict))}</b></td>"
            f"<td>{'<br>'.join(map(escape, _because(verdict)))}</td></tr>"
            for verdict in self.decisions
        )
        table = (
            f"<table><tr><th>attempt</th><th>decision</th><th>because</th></tr>{rows}</table>"
            if rows
            else ""
        )
        waiting = "".join(f"<li>{escape(_waits(one))}</li>" for one in self.data["waiting"])
        now = f"<p>now</p><ul>{waiting}</ul>" if waiting else ""
        job = self.data["job"]
        return f"<div><p><b>{escape(job['name'])}</b> {escape(self.sentence)}</p>{table}{now}</div>"


def _which(verdict: dict[str, Any]) -> str:
    attempt = verdict.get("attempt")
    number = f" attempt {attempt}" if attempt else ""
    error = verdict.get("error") or verdict.get("outcome") or ""
    return f"{verdict['item']['name']}{number}" + (f", {inert(error)}" if error else "")


def _decided(verdict: dict[str, Any]) -> str:
    match verdict["verdict"]:
        case "retry":
            delay = verdict.get("delay_ms") or 0
            return f"retry in {delay / 1000:g}s" if delay else "retry at once"
        case "stop":
            return f"stop: {verdict.get('reason')}"
        case other:
            return str(other)


def _because(verdict: dict[str, Any]) -> list[str]:
    lines = [f"because {inert(verdict['rule']['text'])}"] if verdict.get("rule") else []
    moved = []
    for account in verdict.get("moved") or []:
        limit = f" of {account['limit']}" if account.get("limit") is not None else ""
        moved.append(f"{account['name']} {account['before']} → {account['after']}{limit}")
    if moved:
        lines.append(" · ".join(moved))
    if verdict.get("would_change"):
        lines.append(str(verdict["would_change"]["text"]))
    elif verdict.get("nothing_would"):
        lines.append(str(verdict["nothing_would"]))
    return lines


def _waits(waiting: dict[str, Any]) -> str:
    return f"{waiting['name']}: {inert(waiting['sentence'])}"
