"""Converts units of quantities at the boundary of the program; the only file with 8, 1e9 and 2**30 in it.

Inside the code there are only bytes, seconds, bytes/s, FLOP, FLOP/s, watts, joules and ratios. The field prints link
speeds in Gbit/s, memory in GiB and rates in TFLOP/s; these functions convert at the boundary.
"""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
GB = 10**9
"""Bytes in a decimal gigabyte, as vendors print memory and bandwidth."""
TERA = 10**12
BITS_PER_BYTE = 8
IB_DATA_WORD_BYTES = 4
"""InfiniBand data counters count 4-byte words, whatever the link width (IBA 16.1.3.5)."""


def gbit_per_s(value: float) -> float:
    """Return bytes/s for a speed in Gbit/s (decimal)."""
    return value * 1e9 / BITS_PER_BYTE


def as_gbit_per_s(bytes_per_s: float) -> float:
    """Return Gbit/s (decimal) for a speed in bytes/s."""
    return bytes_per_s * BITS_PER_BYTE / 1e9


def milliseconds(value: float) -> float:
    """Return seconds for a duration in milliseconds."""
    return value / 1e3


def milli(value: float) -> float:
    """Return the base unit for a value in thousandths: millidegrees, millivolts."""
    return value / 1e3


def micro(value: float) -> float:
    """Return the base unit for a value in millionths: microwatts, microjoules, microseconds."""
    return value / 1e6


def nanoseconds(value: float) -> float:
    """Return seconds for a duration in nanoseconds."""
    return value / 1e9


def hours(value: float) -> float:
    """Return seconds for a duration in hours."""
    return value * 3600.0


def megahertz(value: float) -> float:
    """Return hertz for a frequency in MHz."""
    return value * 1e6


def percent(value: float) -> float:
    """Return a ratio from 0 to 1 for a percentage."""
    return value / 100


def mbit_per_s(value: float) -> float:
    """Return bytes/s for a speed in Mbit/s (decimal)."""
    return value * 1e6 / BITS_PER_BYTE


def as_gib(size_bytes: float) -> float:
    """Return GiB for a size in bytes."""
    return size_bytes / GIB
