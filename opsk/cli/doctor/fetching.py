"""What does an HTTP server of the site say, how late is its clock, and why does it say nothing?"""

from __future__ import annotations

import base64
import ssl
import time
import urllib.request
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.error import HTTPError

from opsk.config import TopConfig
from opsk.telemetry.in_time import opener_until
from opsk.units import MIB

DEADLINE_S = 5.0
_MOST_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one question; ``problem`` is why there is no body, ``date_s`` the server's time [s since 1970]."""

    body: bytes = b""
    date_s: float | None = None
    problem: str = ""


def fetch(url: str, top: TopConfig, *, deadline_s: float = DEADLINE_S) -> Answer:
    """Ask once, with what the site has set under ``[top]`` for certificates and password; no proxy is taken."""
    request = urllib.request.Request(url)
    try:
        is_secure = url.startswith("https:")
        context = ssl.create_default_context(cafile=str(top.ca_file) if top.ca_file else None) if is_secure else None
        if top.user is not None and top.password_file is not None:
            password = top.password_file.read_text(encoding="utf-8").strip("\r\n")
            words = base64.b64encode(f"{top.user}:{password}".encode()).decode("ascii")
            request.add_header("Authorization", f"Basic {words}")
        opener = opener_until(time.monotonic() + deadline_s, context=context)
        with opener.open(request, timeout=deadline_s) as answer:
            return Answer(body=answer.read(_MOST_BYTES), date_s=_seconds(answer.headers.get("Date")))
    except HTTPError as error:
        return Answer(problem=f"HTTP status {error.code}", date_s=_seconds(error.headers.get("Date")))
    except (HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Answer(problem=str(getattr(reason, "strerror", None) or reason) or type(error).__name__)


def _seconds(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, TypeError):
        return None
