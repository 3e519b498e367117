"""Text that comes from elsewhere, made fit to be shown, and what is said in JSON."""

from __future__ import annotations

import json
from typing import Any


def inert(text: str) -> str:
    """One line, in which no character does anything: not to a terminal, nor to a picture."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_json(value: Any) -> str:
    """As short as the server counts it: UTF-8, and no spaces. Raises ValueError or TypeError if it is not JSON.

    Half a surrogate pair, as in the name of a file that is not UTF-8, is not: no server could read it.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    text.encode()
    return text
