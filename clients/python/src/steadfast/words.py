"""Text that comes from elsewhere, made fit to be shown."""

from __future__ import annotations


def inert(text: str) -> str:
    """One line, in which no character does anything: not to a terminal, nor to a picture."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
