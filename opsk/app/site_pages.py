"""Fetches a page of one of the site's HTTP servers, with the server's clock or the reason for a failure."""

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
from opsk.telemetry.http_deadline import build_opener
from opsk.units import MIB

DEADLINE_S = 5.0
_MAX_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response to one request; ``problem`` is why there is no body, ``date_s`` the server's time [s since 1970]."""

    body: bytes = b""
    date_s: float | None = None
    problem: str = ""


def fetch(url: str, top: TopConfig, *, deadline_s: float = DEADLINE_S) -> Response:
    """Send one request, with the certificates and password of ``[top]``; no proxy is used."""
    request = urllib.request.Request(url)
    try:
        is_secure = url.startswith("https:")
        context = ssl.create_default_context(cafile=str(top.ca_file) if top.ca_file else None) if is_secure else None
        if top.user is not None and top.password_file is not None:
            password = top.password_file.read_text(encoding="utf-8").strip("\r\n")
            credentials = base64.b64encode(f"{top.user}:{password}".encode()).decode("ascii")
            request.add_header("Authorization", f"Basic {credentials}")
        opener = build_opener(time.monotonic() + deadline_s, context=context)
        with opener.open(request, timeout=deadline_s) as stream:
            return Response(body=stream.read(_MAX_BYTES), date_s=_parse_date(stream.headers.get("Date")))
    except HTTPError as error:
        return Response(problem=f"HTTP status {error.code}", date_s=_parse_date(error.headers.get("Date")))
    except (HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Response(problem=str(getattr(reason, "strerror", None) or reason) or type(error).__name__)


def _parse_date(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, TypeError):
        return None
