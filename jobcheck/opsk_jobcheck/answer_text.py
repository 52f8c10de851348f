r"""How is an answer written so that a hook in Lua takes it apart in a few steps?

Rows of ASCII, each ended by a newline. The first says ``opsk``, the version and the status; every other has a name, a
blank, and a text in which whatever is no printable ASCII sign, and the backslash, stands as ``\uXXXX``::

    opsk 1 advice
    comment opsk:v1 verdict=fits
    line memory \u2713 fits

What each submission of a training job compiles and runs to read this is a fifth of what it takes for JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ESCAPED = re.compile(r"[^ -\[\]-~]")


def answer_text(version: int, status: str, rows: Iterable[tuple[str, str]]) -> bytes:
    """Return an answer as text; rows that say nothing are left out."""
    lines = [f"opsk {version} {status}\n", *(f"{name} {_ESCAPED.sub(_escape, text)}\n" for name, text in rows if text)]
    return "".join(lines).encode("ascii")


def _escape(found: re.Match[str]) -> str:
    """Return one sign as a hook reads it; what takes more than 16 bits is a question mark."""
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 1 << 16 else "?"
