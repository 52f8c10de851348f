"""Which of several faults of one GPU came first: the program's, or the hardware's?

A program that uses memory wrongly (Xid 13, 31) leaves a channel behind that then times out (Xid 109): the program is
the cause. Hardware that fails (Xid 48, 79, 94, ...) ends programs in errors of CUDA: the hardware is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opsk.postmortem.reasoning.candidate import Candidate
from opsk.postmortem.reasoning.places import same_gpu
from opsk.postmortem.values import FailureClass, Origin, Sign

_WITHIN_S = 120.0
_FOLLOWS = frozenset(("43", "45", "109"))
"""Xids that a fault of a program can leave behind; all else of this class is the GPU's own."""
_OF_GPUS = (FailureClass.GPU_HARDWARE, FailureClass.NVLINK)


class Judged(Protocol):
    """A candidate with odds that can be changed."""

    @property
    def candidate(self) -> Candidate:
        """Return the candidate."""

    def times(self, factor: float, why: str) -> None:
        """Change the odds for a reason."""


def order_faults(scores: Sequence[Judged]) -> None:
    """Lower the odds of what follows from another fault of the same GPU."""
    for one in scores:
        for other in scores:
            if one is other or not _on_one_gpu(one.candidate, other.candidate):
                continue
            if _left_behind(one.candidate, other.candidate):
                other.times(0.08, f"on the same GPU {one.candidate.what} came before, which can leave this behind")
            elif _broke(one.candidate, other.candidate):
                other.times(0.1, f"the kernel tells of this GPU: {one.candidate.what}")


def _on_one_gpu(one: Candidate, other: Candidate) -> bool:
    """Tell whether two candidates are of one GPU at one time."""
    here, there = one.place, other.place
    if one.first_s is not None and other.first_s is not None and abs(one.first_s - other.first_s) > _WITHIN_S:
        return False
    is_same = same_gpu(here.pci, there.pci) or (here.rank is not None and here.rank == there.rank)
    return is_same and (not here.node or not there.node or here.node == there.node)


def _xids(candidate: Candidate) -> list[Sign]:
    """Return the Xids of the kernel that a candidate has."""
    return [sign for sign in candidate.signs if sign.signature == "kernel.xid" and sign.origin is Origin.KERNEL]


def _left_behind(program: Candidate, hardware: Candidate) -> bool:
    """Tell whether a GPU's fault is what a program's fault left behind."""
    if program.failure is not FailureClass.SOFTWARE or hardware.failure is not FailureClass.GPU_HARDWARE:
        return False
    before, after = _xids(program), _xids(hardware)
    if not before or not after or len(after) < len(hardware.signs):
        return False
    first = min((sign.time_s or 0.0 for sign in before), default=0.0)
    return all(sign.fields.get("code") in _FOLLOWS and (sign.time_s or 0.0) >= first for sign in after)


def _broke(hardware: Candidate, program: Candidate) -> bool:
    """Tell whether a program's error is that of hardware which the kernel tells of."""
    if hardware.failure not in _OF_GPUS or program.failure is not FailureClass.SOFTWARE or _xids(program):
        return False
    told = [sign for sign in hardware.signs if sign.origin is Origin.KERNEL]
    return any(sign.fields.get("code") not in _FOLLOWS for sign in told)
