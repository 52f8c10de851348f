"""Calls a warm opsk from a shell: ``warm_call.py ADDRESS WORDS``, with its own streams, environment and folder.

It imports next to nothing, so that it starts at once.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path


def call(address: str, words: Sequence[str]) -> int:
    """Return the status of the call."""
    data = json.dumps({"words": ["", *words], "environment": dict(os.environ), "cwd": str(Path.cwd())}).encode("ascii")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(data).to_bytes(8, "big")], (0, 1, 2))
        connection.sendall(data)
        connection.recv(8, socket.MSG_WAITALL)  # its process
        return int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big", signed=True)


if __name__ == "__main__":
    status = call(sys.argv[1], sys.argv[2:])
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
