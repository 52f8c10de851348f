"""Which CPUs does a mask of the kernel stand for?"""

from __future__ import annotations

import re

_MOST_BITS = 1 << 16


def cpu_list(mask: str | None) -> str | None:
    """Return a mask as a list: ``00000000,0000ffff`` is ``0-15``; ``None`` for no mask or an empty one.

    Words of 32 bits, highest first, with or without ``0x``; an empty word (hwloc) is zero.
    """
    words = (mask or "").strip().lower().split(",")
    if not words or any(not re.fullmatch(r"(?:0x)?[0-9a-f]{0,8}", word) for word in words):
        return None
    if 32 * len(words) > _MOST_BITS:
        return None
    bits = int("".join(word.removeprefix("0x").zfill(8) for word in words), 16)
    ranges: list[str] = []
    at = 0
    while bits >> at:
        if not bits >> at & 1:
            at += 1
            continue
        first = at
        while bits >> at & 1:
            at += 1
        ranges.append(str(first) if at == first + 1 else f"{first}-{at - 1}")
    return ",".join(ranges) or None
