"""What does the advisor of this host share? All jobs and nodes, and it takes records for the store.

The answer is bytes of at most some megabytes on a Unix socket; whoever listens there is the site's own program, and is
believed no more than a snapshot that is damaged.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsk.errors import UnavailableError
from opsk.slurm.snapshot import LARGEST_BYTES, MARK

DEADLINE_S = 5.0
AGAIN_AFTER_S = 0.2
_HEADER_BYTES = 4
_HINT = "systemctl status opsk-advisor; without it Slurm is asked directly"


def ask_cluster(path: Path, have: str = "", *, deadline_s: float = DEADLINE_S) -> bytes:
    """Return the snapshot of Slurm that the advisor shares.

    Parameters
    ----------
    have
        Digest of the one that is known already.
    deadline_s
        How long to wait while the advisor has Slurm asked for the first time [s].

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
        status = _status(answer)
        if status != "later" or time.monotonic() + AGAIN_AFTER_S > end:
            why = "knows no jobs and nodes yet" if status == "later" else "does not share jobs and nodes"
            raise UnavailableError(f"{path}: the advisor {why}", hint=_HINT)
        time.sleep(AGAIN_AFTER_S)


def send_records(path: Path, records: Sequence[str], *, deadline_s: float = DEADLINE_S) -> bool:
    """Hand records to the store's writer; tell whether it took them, else they may be sent again later.

    Raises
    ------
    UnavailableError
        There is no advisor, or it does not know how.
    """
    status = _status(_ask(path, {"kind": "record", "records": list(records)}, time.monotonic() + deadline_s))
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
            length = int.from_bytes(_exactly(connection, _HEADER_BYTES, end), "big")
            if length > LARGEST_BYTES:
                raise UnavailableError(f"{path}: an answer of {length} bytes", hint=_HINT)
            return _exactly(connection, length, end)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror or 'no answer in time'}", hint=_HINT) from error


def _exactly(connection: socket.socket, count: int, end: float) -> bytes:
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


def _status(answer: bytes) -> str:
    """Return the status of an answer in JSON, "" where it is none."""
    try:
        return str(json.loads(answer).get("status", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""
