"""Parses the counts, times, GPU requests and index lists in Slurm's text output."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "none", "Unknown", "NONE"})
_GPU_ITEM = re.compile(r"(?:gres[:/])?gpu(?P<rest>[:=][^,(]*)?(?:\([^)]*\))?")
_INDICES = re.compile(r"gpu(?::[^,(]*)?\(IDX:([0-9,\-]+)\)")
_NO_TYPE = "(null):"
"""Stands where a type could: ``gpu:(null):2(IDX:0-1)``."""
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_EXIT = re.compile(r"(\d+):(\d+)")
MAX_GPU_INDEX = 4096
"""Index ranges beyond this are damaged text: no node has so many devices."""


def parse_optional(text: str) -> str | None:
    """Return the text, or ``None`` for the words with which Slurm writes "nothing"."""
    stripped = text.strip()
    return None if stripped in _NOTHING else stripped


def parse_count(text: str) -> int | None:
    """Return a count; ``None`` where there is none. Of a range (``2-4``) the lower end is returned."""
    match = re.match(r"\d+", text.strip())
    return int(match.group()) if match else None


def parse_time(text: str) -> datetime | None:
    """Return a time written as seconds since 1970 (``SLURM_TIME_FORMAT=%s``) or in ISO form (the asker's zone)."""
    stripped = text.strip()
    try:
        if stripped.isdigit():
            return datetime.fromtimestamp(int(stripped), tz=UTC)
        return datetime.fromisoformat(stripped).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def parse_duration_s(text: str) -> int | None:
    """Return seconds of ``[days-][hours:]minutes:seconds``; ``None`` for ``UNLIMITED`` and the like."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_exit_status(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of ``3:0``, or of the bare wait status (``768``) that 22.05 prints.

    Source: wait(2): the exit code is in the second byte of the status, the signal in the low seven bits.
    """
    stripped = text.strip()
    match = _EXIT.fullmatch(stripped)
    if match:
        return int(match.group(1)), int(match.group(2))
    return (int(stripped) >> 8, int(stripped) & 0x7F) if stripped.isdecimal() else (None, None)


def parse_gpus(text: str) -> tuple[int, str | None]:
    """Return number and type of the GPUs in a TRES or GRES text of any release.

    A generic entry already counts the typed ones (``gres/gpu=16,gres/gpu:h100=16`` is 16); several types
    give no type.

    Examples
    --------
    >>> gpus_of("cpu=2,gres/gpu=16,gres/gpu:h100=16"), gpus_of("gres:gpu:h100:2"), gpus_of("gpu:a100:8(S:0-1)")
    ((16, 'h100'), (2, 'h100'), (8, 'a100'))
    """
    typed = _parse_gpu_items(text)
    generic = typed.pop("", None)
    kind = next(iter(typed)) if len(typed) == 1 else None
    return (sum(typed.values()) if generic is None else generic), kind


def parse_gpus_by_type(text: str) -> dict[str, int]:
    """Return the GPUs of a TRES or GRES text by type; of a generic entry only what no typed one counts.

    Examples
    --------
    >>> gpus_by_type("gpu:h100:6(S:0-1),gpu:1g.10gb:7(S:0)"), gpus_by_type("gres/gpu=4"), gpus_by_type("(null)")
    ({'h100': 6, '1g.10gb': 7}, {'': 4}, {})
    """
    items = _parse_gpu_items(text)
    typed = {kind: number for kind, number in items.items() if kind}
    rest = items.get("", 0) - sum(typed.values())
    return {**typed, "": rest} if rest > 0 else typed


def _parse_gpu_items(text: str) -> dict[str, int]:
    """Return the entries of GPUs as they are written, those without a type as the empty one."""
    counts: dict[str, int] = {}
    for item in re.split(r",(?![^(]*\))", text.replace(_NO_TYPE, "")):
        match = _GPU_ITEM.fullmatch(item.strip())
        if not match:
            continue
        parts = re.split(r"[:=]", (match["rest"] or "")[1:]) if match["rest"] else []
        number = int(parts.pop()) if parts and parts[-1].isdecimal() else 1
        kind = parts[0] if parts else ""
        counts[kind] = counts.get(kind, 0) + number
    return counts


def parse_gpu_indices(text: str) -> tuple[int, ...]:
    """Return the GRES indices in ``gpu:h100:3(IDX:0-1,5)``; empty for ``IDX:N/A`` and for none.

    Examples
    --------
    >>> gpu_indices("gpu:h100:3(IDX:0-1,5)")
    (0, 1, 5)
    """
    indices: set[int] = set()
    for ranges in _INDICES.findall(text.replace(_NO_TYPE, "")):
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal() and int(last or first) < MAX_GPU_INDEX:
                indices.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(indices))
