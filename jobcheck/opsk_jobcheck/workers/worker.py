"""Computes advice in a process that can be killed, so that nobody waits for it longer than for an answer.

It reads analysis requests from its standard input and writes the analyses to its standard output, each a frame of JSON
as ``protocol`` describes them. It ends when its input ends, so none outlives the advisor.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from opsk.config import SiteConfig
from opsk.errors import OpskError
from opsk.units import GIB
from opsk_jobcheck.submission.protocol import frame, read_frame
from opsk_jobcheck.workers.analysis import AnalysisRequest, Analyzer

MAX_ADDRESS_SPACE_BYTES = 8 * GIB
"""A script that makes the analysis grow beyond this kills only its own worker."""
COLLECT_AFTER = (20_000, 10, 10)
"""Allocations before Python looks for reference cycles; a script makes thousands, which are freed without it."""

log = logging.getLogger(__name__)


def run(make: Callable[[SiteConfig], Analyzer]) -> None:
    """Serve analysis requests until the input ends; the first frame is the site configuration.

    Parameters
    ----------
    make
        Builds the analyzer; an ``OpskError`` from it is reported to the advisor, which refuses to start.
    """
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(ConnectionError):  # an advisor that was killed waits for no answer
        _serve(make, incoming, outgoing)


def _serve(make: Callable[[SiteConfig], Analyzer], incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Serve analysis requests until the input ends.

    Raises
    ------
    ConnectionError
        The advisor has ended, and left an answer unread.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES))
    setup = read_frame(incoming)
    if setup is None:
        return
    try:
        analyzer = make(SiteConfig.model_validate_json(setup))
    except OpskError as error:
        _send(outgoing, {"error": error.message, "hint": error.hint})
        return
    gc.collect()
    gc.freeze()  # the fabric stays: scanning its objects again and again took 30 ms of some answers
    gc.set_threshold(*COLLECT_AFTER)
    _send(outgoing, {"ready": True})
    while (body := read_frame(incoming)) is not None:
        _send(outgoing, _analyze(analyzer, body))


def _analyze(analyzer: Analyzer, body: bytes) -> dict[str, Any]:
    """Return the packed analysis, or the failure: the job must not suffer from errors in the advisor."""
    try:
        return {"advised": analyzer.analyze(AnalysisRequest.unpack(json.loads(body))).pack()}
    except Exception as error:
        log.exception("no advice on a script")
        return {"failed": type(error).__name__}


def _send(stream: BinaryIO, document: dict[str, Any]) -> None:
    """Write one frame."""
    stream.write(frame(json.dumps(document).encode("ascii")))
    stream.flush()
