"""Converts InfiniBand link widths and speed names to data rates; no other file knows the speed names."""

from __future__ import annotations

import re
from functools import cache

from opsk.units import gbit_per_s

LANE_GBIT_PER_S = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 14.0625 * 64 / 66,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Data rate of one lane, one direction, after line coding [Gbit/s].

Signalling rates 2.5, 5, 10 Gbit/s with 8b/10b for SDR, DDR, QDR (IBA volume 2, 5.5); FDR10 10.3125 and FDR 14.0625 with
64b/66b; EDR 25.78125 with 64b/66b; HDR 53.125, NDR 106.25, XDR 212.5 with 256b/257b and FEC, sold as 50, 100 and 200
(InfiniBand Trade Association roadmap). FDR 4x is 54.54 Gbit/s of data, sold as 56.
"""

_SIGNALLING = {
    "2.5": "SDR", "5.0": "DDR", "5": "DDR", "10.0": "QDR", "10": "QDR", "10.3125": "FDR10", "14.0625": "FDR",
    "25.78125": "EDR", "53.125": "HDR", "106.25": "NDR", "212.5": "XDR",
}  # fmt: skip
_RANK = {word: position for position, word in enumerate(LANE_GBIT_PER_S)}
_WIDTH_AND_SPEED = re.compile(r"(\d{1,2})[xX]\s*([A-Z]+\d*)\b")


@cache
def link_bytes_per_s(width: int, speed: str) -> float:
    """Return the data rate of ``width`` lanes of ``speed``, one direction [bytes/s]; 0 for an unknown name.

    Examples
    --------
    >>> link_bytes_per_s(4, "HDR")
    25000000000.0
    """
    return gbit_per_s(width * LANE_GBIT_PER_S.get(speed, 0.0))


def speed_rank(speed: str) -> int:
    """Return the rank of a speed name from slow to fast, -1 for an unknown one."""
    return _RANK.get(speed, -1)


def parse_link(text: str) -> tuple[int, str]:
    """Return width and speed name of ``4xHDR``; (0, "") when the text holds none."""
    match = _WIDTH_AND_SPEED.search(text)
    return (int(match[1]), match[2]) if match else (0, "")


def speed_word(lane_gbit_per_s: str) -> str:
    """Return the speed name for a lane's signalling rate as iblinkinfo prints it (``25.78125``); "" when not known."""
    return _SIGNALLING.get(lane_gbit_per_s, "")
