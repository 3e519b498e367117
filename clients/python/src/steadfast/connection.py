"""The way to a server: its address, who we are, and what its refusals are called here."""

from __future__ import annotations

import ipaddress
import json
import os
import random
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

from .errors import (
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    ServerError,
    ServerUnreachable,
    SteadfastError,
    TooLarge,
)

DEFAULT_SERVER = "http://127.0.0.1:7117"
#: The status of a job has outputs in it, a worker's assignment those of earlier steps.
LARGEST_MESSAGE = 64 << 20

_CLASSES: dict[Any, type[SteadfastError]] = {
    grpc.StatusCode.UNAUTHENTICATED: NotAllowed,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: TooLarge,
    grpc.StatusCode.ALREADY_EXISTS: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLarge,
    grpc.StatusCode.UNAVAILABLE: ServerUnreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: ServerUnreachable,
}


def _token_of_file() -> str | None:
    path = os.environ.get("STEADFAST_TOKEN_FILE")
    return Path(path).read_text(encoding="utf-8").strip() if path else None


@dataclass(frozen=True)
class Place:
    """A server, and how to speak to it."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    #: Which of the tokens that a `steadfast up` of this user has left, if none is given.
    left: str = "client"

    @classmethod
    def find(
        cls,
        server: str | None,
        token: str | None,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        left: str = "client",
    ) -> Place:
        """What is not said is in STEADFAST_SERVER, and in STEADFAST_TOKEN or the file that STEADFAST_TOKEN_FILE
        names, or has its default. Without a token, one that `steadfast up` has left for its user is found."""
        url = (server or os.environ.get("STEADFAST_SERVER") or DEFAULT_SERVER).rstrip("/")
        token = token or os.environ.get("STEADFAST_TOKEN") or _token_of_file() or None
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise ValueError("the token contains what no token contains")
        parts = urlsplit(url)
        try:
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.path
            good = good and (parts.port is None or parts.port > 0)
        except ValueError:
            good = False
        if not good:
            raise ValueError(f"{url!r} is no server's address; it looks like {DEFAULT_SERVER}")
        if (cert is None) != (key is None):
            raise ValueError("a certificate and its key come together")
        return cls(url, token, ca, cert, key, left)

    @property
    def secure(self) -> bool:
        return self.url.startswith("https://")

    @property
    def target(self) -> str:
        parts = urlsplit(self.url)
        port = parts.port or (443 if self.secure else 80)
        host = parts.hostname or ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def is_here(self) -> bool:
        """No proxy leads to this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def bearer(self) -> str | None:
        """Looked for anew each time: an `up` that is started again has another."""
        token = self.token or (self._left_token() if self.is_here and not self.secure else None)
        return f"Bearer {token}" if token else None

    def _left_token(self) -> str | None:
        state = os.environ.get("XDG_STATE_HOME")
        home = os.environ.get("HOME")
        if not state and not home:
            return None
        folder = Path(state) if state else Path(home or "") / ".local" / "state"
        port = urlsplit(self.url).port or 80
        try:
            with open(folder / "steadfast" / f"up-{port}.json", encoding="utf-8") as file:
                about = os.fstat(file.fileno())
                # What others can write may be a trap, and what they can read is no secret.
                if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                    return None
                token = json.load(file).get(self.left)
        except (OSError, ValueError, AttributeError):
            return None
        return token if isinstance(token, str) else None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", bearer),) if (bearer := self.bearer) else ()

    def can_pass(self, error: grpc.RpcError, sent: tuple[tuple[str, str], ...]) -> bool:
        """Worth another try; also if an `up` was started again and has left another token than was sent."""
        renewed = error.code() is grpc.StatusCode.UNAUTHENTICATED and self.metadata != sent
        return renewed or can_pass(error)

    def options(self) -> list[tuple[str, int]]:
        options = [
            # A server that restarts is back soon.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # A machine that is gone says nothing.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            # Each client has connections of its own, and takes them along.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self.is_here:
            options.append(("grpc.enable_http_proxy", 0))
        return options

    def channel(self, api: Any) -> Any:
        """`api` is grpc, or grpc.aio."""
        if not self.secure:
            return api.insecure_channel(self.target, options=self.options())
        credentials = grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca),
            private_key=_read(self.key),
            certificate_chain=_read(self.cert),
        )
        return api.secure_channel(self.target, credentials, options=self.options())

    def tls(self) -> ssl.SSLContext | None:
        if not self.secure:
            return None
        context = ssl.create_default_context(cafile=os.fspath(self.ca) if self.ca else None)
        if self.cert is not None:
            context.load_cert_chain(os.fspath(self.cert), os.fspath(self.key) if self.key else None)
        return context

    def error(self, error: grpc.RpcError) -> SteadfastError:
        """What the server's refusal is called here."""
        return self.refusal(error.code(), error.details() or "")

    def refusal(self, code: grpc.StatusCode, details: str) -> SteadfastError:
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return self.unreachable(details)
        message = details or code.name
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            message = f"the server {self.url} does not let us in: {message}"
            if self.token is None:
                message += ". Give Client(token=…) or set STEADFAST_TOKEN"
        return _CLASSES.get(code, ServerError)(message)

    def unreachable(self, why: str) -> ServerUnreachable:
        return ServerUnreachable(
            f"no server answers at {self.url}: {why}. Is it running, and is the address right?"
        )


def _read(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def can_pass(error: grpc.RpcError) -> bool:
    """Worth another try: the server is not there, or the connection broke on the way."""
    code = error.code()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return True
    broken = ["GOAWAY", "RST_STREAM", "Stream removed", "Connection reset", "Socket closed"]
    # In the words of grpc.aio, while a stream is written.
    broken.append("Internal error from Core")
    details = error.details() or ""
    unknown = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)
    return code in unknown and any(word in details for word in broken)


def pause(tries: int, longest: float = 2.0) -> float:
    """Doubled with every try, and drawn from its upper half so that not all come back at once."""
    most = min(0.05 * (1 << min(tries, 16)), longest)
    return most / 2 + random.random() * most / 2


class Patience:
    """With somebody who does not answer: so many seconds, from the first time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._tries, self._give_up = 0, 0.0

    def pause(self) -> float | None:
        """How long until the next try; None: it was tried for long enough."""
        now = time.monotonic()
        if self._tries == 0:
            self._give_up = now + self._seconds
        if now >= self._give_up:
            return None
        self._tries += 1
        return min(pause(self._tries - 1), self._give_up - now)
