"""Notes what the operations of a training step save for the backward pass.

Where a test of the program is not known, both branches are followed: the lower limit is that of the smaller one, and
the upper limit that of the larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from opsk_jobcheck.scripts.frameworks.own_models.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.values import NOTHING, Span, Storage, Tensor


@dataclass(slots=True)
class Tape:
    """What a training step saved so far.

    Parameters
    ----------
    autocast
        Type to which operations that compute much cast what they read; empty without autocast.
    saves
        Whether gradients are computed: not under ``torch.no_grad()``.
    saved
        Storages by their identity, each with whether it is saved for sure.
    casts
        Copies of weights in the type of autocast, which it makes once a step.
    joined, joined_bytes
        What only one of several branches saved, and its size; what is saved again later may be among it.
    transient_bytes
        What one operation needs in the backward pass, at the largest.
    reason
        Why there is no upper limit.
    """

    autocast: str = ""
    saves: bool = True
    is_finished: bool = False
    saved: dict[int, tuple[Storage, bool]] = field(default_factory=dict)
    joined: dict[int, Storage] = field(default_factory=dict)
    joined_bytes: Span = NOTHING
    transient_bytes: int | None = 0
    reason: str = ""
    casts: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    def save(self, tensor: Tensor, *, is_sure: bool = True) -> None:
        """Note that a tensor is saved; weights and buffers are no activations."""
        storage = tensor.storage
        if not self.saves or self.is_finished or storage is None or storage.is_state:
            return
        key = id(storage)
        was_sure = key in self.saved and self.saved[key][1]
        self.saved[key] = (storage, (is_sure or was_sure) and key not in self.joined)

    def note_transient(self, size_bytes: int | None) -> None:
        """Note what one operation needs in the backward pass; the largest one counts."""
        if self.saves and not self.is_finished:
            self.transient_bytes = _max(self.transient_bytes, size_bytes)

    def give_up(self, reason: str) -> None:
        """Note that something is not known: there is no upper limit then."""
        if not self.is_finished and not self.reason:
            self.reason = reason

    def copy(self) -> Tape:
        """Return a copy, for a branch."""
        return replace(self, saved=dict(self.saved), joined=dict(self.joined), casts=dict(self.casts))

    def read(self) -> StepMemory:
        """Return the memory of the step."""
        low, high = self.joined_bytes.low, self.joined_bytes.high
        for storage, is_sure in self.saved.values():
            low += storage.size_bytes.low if is_sure else 0
            size = storage.size_bytes.high
            high = None if high is None or size is None else high + size
        is_known = high is not None and self.transient_bytes is not None and not self.reason
        return StepMemory(
            saved_bytes=Span(low, high if is_known else None),
            transient_bytes=Span(0, self.transient_bytes if is_known else None),
            reason="" if is_known else self.reason or "the size of a tensor is not known",
        )


def join_tapes(before: Tape, branches: Sequence[Tape]) -> Tape:
    """Return the tape after branches of which one is taken."""
    result = before.copy()
    shared = set[int].intersection(*(set(branch.saved) for branch in branches))
    result.saved = {key: (branches[0].saved[key][0], all(row.saved[key][1] for row in branches)) for key in shared}
    spans: list[Span] = []
    for branch in branches:
        span = branch.joined_bytes
        for key, (storage, is_sure) in branch.saved.items():
            if key not in shared:
                span += Span(storage.size_bytes.low if is_sure else 0, storage.size_bytes.high)
                result.joined[key] = storage
        spans.append(span)
        result.transient_bytes = _max(result.transient_bytes, branch.transient_bytes)
        result.reason = result.reason or branch.reason
        result.joined |= branch.joined
        result.casts |= {key: copy for key, copy in branch.casts.items() if key not in result.casts}
    result.joined_bytes = reduce(Span.join, spans)
    result.is_finished = all(branch.is_finished for branch in branches)
    return result


def _max(first: int | None, second: int | None) -> int | None:
    """Return the larger of two sizes; ``None`` where one is not known."""
    return None if first is None or second is None else max(first, second)
