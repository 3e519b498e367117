"""What only the server's REST routes do: logs, explanations, further commands, and which files a job file wants."""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from .connection import Place, pause
from .errors import (
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    ServerError,
    SteadfastError,
    TooLarge,
)
from .explanation import Explanation
from .status import JobId, LogFile, Output

#: For one answer; a followed stream is not asked for here.
PATIENT = 60.0
SUBMISSION = "application/vnd.steadfast.submission+json"
_CLASSES: dict[int, type[SteadfastError]] = {
    400: InvalidRequest,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    415: InvalidRequest,
    507: TooLarge,
}


class Refused(Exception):
    """An answer that is an error; `problem` is its body."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail"))
        self.status = status
        self.problem = problem

    def error(self) -> SteadfastError:
        message = str(self.problem.get("detail") or f"HTTP status {self.status}")
        for more in (self.problem.get("errors") or [])[1:]:
            message += f"\nline {more.get('line')}: {more.get('message')}"
        return _CLASSES.get(self.status, ServerError)(message)


class Rest:
    """Blocking; safe to use from many threads. Every request can be sent again."""

    def __init__(self, place: Place, patience: float) -> None:
        self._place = place
        self._patience = patience
        handlers: list[urllib.request.BaseHandler] = []
        if place.is_here:
            handlers.append(urllib.request.ProxyHandler({}))
        context = place.tls()
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        url = f"{self._place.url}/v1/{path}" + (f"?{urlencode(given)}" if given else "")
        tries, give_up = 0, 0.0
        while True:
            bearer = self._place.bearer
            sent = {**(headers or {}), **({"Authorization": bearer} if bearer else {})}
            request = urllib.request.Request(url, data=body, headers=sent)
            try:
                with self._opener.open(request, timeout=PATIENT) as answer:
                    body = bytes(answer.read())
                # 202: the server's store has not confirmed it yet, so the same is said again, with the same key.
                if answer.status != 202:
                    return body
                why = str(_problem(body).get("detail") or "its store has not confirmed it yet")
            except urllib.error.HTTPError as refused:
                with refused:
                    problem = _problem(refused.read())
                # An `up` that was started again has left another token.
                renewed = refused.code == 401 and self._place.bearer != bearer
                if refused.code not in (429, 503) and not renewed:
                    raise Refused(refused.code, problem) from None
                why = str(problem.get("detail") or "it is overloaded")
            except urllib.error.URLError as error:
                why = str(error.reason)
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
            now = time.monotonic()
            if tries == 0:
                give_up = now + self._patience
            if now >= give_up:
                raise self._place.unreachable(why)
            time.sleep(min(pause(tries), max(give_up - now, 0)))
            tries += 1

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        try:
            return json.loads(self.ask(path, query))
        except Refused as refused:
            raise refused.error() from None

    def explain(self, job_id: str, step: str | None = None) -> Explanation:
        return Explanation(self.get(f"jobs/{quote(job_id, safe='')}/explain", {"step": step}))

    def command(self, job_id: str, what: str) -> None:
        """`pause` or `resume`."""
        self._post(f"jobs/{quote(job_id, safe='')}/{what}", b"", {})

    def retry(self, job_id: str, from_step: str | None, grant: int | None, key: str) -> JobId:
        asked = {"from": from_step, "grant": grant}
        body = json.dumps({name: value for name, value in asked.items() if value is not None}).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        made = self._post(f"jobs/{quote(job_id, safe='')}/retry", body, headers)
        return JobId(json.loads(made)["id"])

    def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        try:
            # Without a word urllib calls every body a form, which no server of ours takes.
            return self.ask(path, body=body, headers={"Content-Type": "application/json", **headers})
        except Refused as refused:
            raise refused.error() from None

    def outputs(self, job_id: str, step: str | None) -> Iterator[Output]:
        cursor: str | None = None
        while True:
            page = self.get(f"jobs/{quote(job_id, safe='')}/outputs", {"step": step, "cursor": cursor})
            yield from (Output(**output) for output in page["outputs"])
            cursor = page["next"]
            if cursor is None:
                return

    def log_files(self, job_id: str, step: str | None = None) -> list[LogFile]:
        files: list[LogFile] = []
        cursor: str | None = None
        while True:
            path = f"jobs/{quote(job_id, safe='')}/logs"
            page = self.get(path, {"step": step, "cursor": cursor})
            files += [LogFile(**log) for log in page["logs"]]
            cursor = page["next"]
            if cursor is None:
                return sorted(files, key=lambda log: (log.step, log.role, log.item, log.attempt))

    def read(self, job_id: str, step: str, name: str, offset: int = 0) -> str:
        parts = [quote(part, safe="") for part in (job_id, step, name)]
        path = f"jobs/{parts[0]}/logs/{parts[1]}/{parts[2]}"
        try:
            return self.ask(path, {"offset": offset or None}).decode("utf-8", "replace")
        except Refused as refused:
            raise refused.error() from None

    def logs(self, job_id: str, step: str | None, item: int | None, attempt: int | None) -> str:
        if attempt is not None and attempt < 1:
            raise InvalidRequest(
                f"there is no attempt {attempt}: attempts are counted from 1 here, and from 0 only in attempt_id"
            )
        if item is not None and item < 0:
            raise InvalidRequest(f"there is no item {item}: items are counted from 0")
        wanted = [
            log
            for log in self.log_files(job_id, step)
            if item in (None, log.item) and attempt in (None, log.attempt)
        ]
        texts = [self.read(job_id, log.step, log.name) for log in wanted]
        if len(wanted) == 1:
            return texts[0]
        named = zip(wanted, texts, strict=True)
        return "".join(f"== {log.name} ==\n{_ended(text)}" for log, text in named)

    def submit_file(self, path: str | os.PathLike[str], key: str) -> JobId:
        """The server reads the job file, and says which files it names."""
        file = Path(path)
        text = file.read_text(encoding="utf-8")
        headers = {"Content-Type": SUBMISSION, "Idempotency-Key": key}
        attached: dict[str, dict[str, Any]] = {}
        while True:
            body = json.dumps({"file": text, "files": list(attached.values())}).encode()
            try:
                answer = json.loads(self.ask("jobs", body=body, headers=headers))
                return JobId(answer["id"])
            except Refused as refused:
                missing = [name for name in refused.problem.get("missing") or [] if isinstance(name, str)]
                if not missing or set(missing) & attached.keys():
                    raise refused.error() from None
            for name in missing:
                _attach(file.parent, name, attached)


def _attach(folder: Path, name: str, attached: dict[str, dict[str, Any]]) -> None:
    """A folder stands for all that is in it."""
    whole = folder / name
    # The server names what the job file says: nothing else of this machine is its business.
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidRequest(f"the job names the file {name!r}, which is not beside its job file")
    if whole.is_dir():
        for inner in sorted(whole.iterdir()):
            if not (inner.is_symlink() and inner.is_dir()):
                _attach(folder, f"{name}/{inner.name}", attached)
        return
    try:
        content = whole.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"the job names the file {name!r}, which cannot be attached: {error}") from error
    attached[name] = {
        "path": name,
        "content_base64": base64.b64encode(content).decode(),
        "executable": os.access(whole, os.X_OK),
    }


def _problem(body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": body[:500].decode("utf-8", "replace")}


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"
