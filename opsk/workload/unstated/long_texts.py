"""Tells where a stated length is only that at which longer texts are cut, and longer than nearly all texts are."""

from __future__ import annotations

from opsk.workload.unstated.sizes import Size, Task, find_range
from opsk.workload.workload import Workload

CUT_TEXTS = "texts.cut"
"""The option that states that a sample is one text, cut where it is longer than the stated length, and not filled up
(``true``)."""


def find_longest_usual(workload: Workload) -> int | None:
    """Return what texts rarely exceed, where the stated length is more than that; ``None`` where it is not."""
    span, seq = find_range(Size.TOKENS, Task.LANGUAGE_MODEL), workload.model.seq
    if dict(workload.options).get(CUT_TEXTS) != "true" or span is None or seq is None or seq <= span.generous:
        return None
    return span.generous
