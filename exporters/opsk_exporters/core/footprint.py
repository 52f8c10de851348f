"""Limits the memory and CPU time of the exporter, which runs on nodes that belong to jobs.

The allocator of glibc gives each thread an arena of its own, and every scrape comes in a new thread: the same 20 MB of
garbage would then be held several times. One arena is enough for a process whose threads mostly wait. The cyclic
garbage collector would scan all imported modules again and again, and finds nothing there.
"""

from __future__ import annotations

import contextlib
import gc

from opsk.units import KIB

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_CHUNK_BYTES = 128 * KIB
_YOUNG_OBJECTS = 10_000
"""Objects of one scrape: most are gone at its end, without anybody looking for cycles."""


def keep_small() -> None:
    """Make the allocator use one arena and return large pieces, and reduce garbage collection of cycles.

    Does nothing about the allocator where it is not glibc's. Source: mallopt(3).
    """
    import ctypes

    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in (
            (_M_ARENA_MAX, 1),
            (_M_MMAP_THRESHOLD, _CHUNK_BYTES),
            (_M_TRIM_THRESHOLD, _CHUNK_BYTES),
        ):
            mallopt(ctypes.c_int(parameter), ctypes.c_int(value))
