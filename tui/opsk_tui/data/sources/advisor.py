"""Reads the shared snapshot of jobs and nodes from this host's advisor, and sends it records for the store.

The answer is at most some megabytes on a Unix socket. The listener is the site's own program; its answers are validated
like any snapshot, which may be damaged.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsk.errors import UnavailableError
from opsk.slurm.snapshot import MARK, MAX_BYTES

DEADLINE_S = 5.0
AGAIN_AFTER_S = 0.2
_HEADER_BYTES = 4
_HINT = "systemctl status opsk-advisor; without it Slurm is asked directly"


def ask_cluster(path: Path, have: str = "", *, deadline_s: float = DEADLINE_S) -> bytes:
    """Return the snapshot of Slurm that the advisor shares.

    Parameters
    ----------
    have
        Digest of the snapshot that is known already.
    deadline_s
        How long to wait while the advisor queries Slurm for the first time [s].

    Raises
    ------
    UnavailableError
        There is no advisor, it shares nothing, or none of it in time.
    """
    end = time.monotonic() + deadline_s
    while True:
        answer = _ask(path, {"kind": "cluster", "have": have}, end)
        if answer.startswith(MARK):
            return answer
        status = _parse_status(answer)
        if status != "later" or time.monotonic() + AGAIN_AFTER_S > end:
            why = "knows no jobs and nodes yet" if status == "later" else "does not share jobs and nodes"
            raise UnavailableError(f"{path}: the advisor {why}", hint=_HINT)
        time.sleep(AGAIN_AFTER_S)


def send_records(path: Path, records: Sequence[str], *, deadline_s: float = DEADLINE_S) -> bool:
    """Send records to the store's writer; return whether it accepted them, else they may be sent again later.

    Raises
    ------
    UnavailableError
        There is no advisor, or it does not support records.
    """
    status = _parse_status(_ask(path, {"kind": "record", "records": list(records)}, time.monotonic() + deadline_s))
    if status not in ("taken", "later"):
        raise UnavailableError(f"{path}: the advisor takes no records", hint=_HINT)
    return status == "taken"


def _ask(path: Path, question: dict[str, Any], end: float) -> bytes:
    """Return the body of the answer to one question."""
    body = json.dumps({"v": 1, **question}).encode("ascii")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(0.05, end - time.monotonic()))
            connection.connect(str(path))
            connection.sendall(len(body).to_bytes(_HEADER_BYTES, "big") + body)
            length = int.from_bytes(_receive_exactly(connection, _HEADER_BYTES, end), "big")
            if length > MAX_BYTES:
                raise UnavailableError(f"{path}: an answer of {length} bytes", hint=_HINT)
            return _receive_exactly(connection, length, end)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror or 'no answer in time'}", hint=_HINT) from error


def _receive_exactly(connection: socket.socket, count: int, end: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(0.05, end - time.monotonic()))
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError(0, "the connection was closed")
        data += part
        if time.monotonic() > end:
            raise TimeoutError
    return bytes(data)


def _parse_status(answer: bytes) -> str:
    """Return the status of an answer in JSON, "" where it is not JSON."""
    try:
        return str(json.loads(answer).get("status", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""
