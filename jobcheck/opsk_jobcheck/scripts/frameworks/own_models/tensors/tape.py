"""Notes what the operations of a training step save for the backward pass.

Where a test of the program is not known, both branches are followed: the lower limit is that of the smaller one, and
the upper limit that of the larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.values import NOTHING, Parameter, Span, Storage, Tensor

GRADIENTS = 2
"""Gradients that wait for others, as those around residual parts do, are not larger than those of one operation."""


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
    weights
        The weights that were read, as tensors.
    is_sure
        Whether what is saved is saved for sure: not where weights may be frozen, or parts be computed again.
    largest
        The memory of the backward passes so far, of which the largest counts.
    """

    autocast: str = ""
    saves: bool = True
    saved: dict[int, tuple[Storage, bool]] = field(default_factory=dict)
    joined: dict[int, Storage] = field(default_factory=dict)
    joined_bytes: Span = NOTHING
    transient_bytes: int | None = 0
    reason: str = ""
    casts: dict[tuple[int, str], tuple[Storage, Tensor]] = field(default_factory=dict)
    weights: dict[int, tuple[Parameter, Tensor]] = field(default_factory=dict)
    is_sure: bool = True
    largest: StepMemory | None = None

    def save(self, tensor: Tensor, *, is_sure: bool = True) -> None:
        """Note that a tensor is saved; weights and buffers are no activations."""
        storage = tensor.storage
        if not self.saves or storage is None or storage.is_state:
            return
        key = id(storage)
        was_sure = key in self.saved and self.saved[key][1]
        self.saved[key] = (storage, ((is_sure and self.is_sure) or was_sure) and key not in self.joined)

    def replace_storage(self, storage: Storage, other: Storage) -> None:
        """Note that what was saved is in the memory of another tensor: the operation wrote it there."""
        if id(storage) in self.saved:
            is_sure = self.saved.pop(id(storage))[1]
            if not other.is_state:
                was_sure = id(other) in self.saved and self.saved[id(other)][1]
                self.saved[id(other)] = (other, is_sure or was_sure)

    def note_transient(self, sizes: Sequence[int | None]) -> None:
        """Note the gradients that an operation reads and writes in the backward pass, in bytes."""
        if self.saves:
            total = None if None in sizes else GRADIENTS * sum(size for size in sizes if size is not None)
            self.transient_bytes = _max(self.transient_bytes, total)

    def give_up(self, reason: str) -> None:
        """Note that something is not known: there is no upper limit then."""
        if self.saves and not self.reason:
            self.reason = reason

    def describe(self) -> tuple[object, ...]:
        """Return what tells whether anything was noted since."""
        return len(self.saved), self.joined_bytes, self.transient_bytes, self.largest, self.reason

    def copy(self) -> Tape:
        """Return a copy, for a branch."""
        return replace(
            self, saved=dict(self.saved), joined=dict(self.joined), casts=dict(self.casts), weights=dict(self.weights)
        )

    def finish_pass(self, *, keeps: bool = False) -> None:
        """Note that a backward pass runs, after which what was saved is free unless the program retains it."""
        memory = self.read_pass()
        self.largest = memory if self.largest is None else _max_memory(self.largest, memory)
        if not keeps:
            self.saved, self.joined, self.joined_bytes, self.transient_bytes = {}, {}, NOTHING, 0

    def read(self) -> StepMemory:
        """Return the memory of the step: of its largest backward pass, else of what was followed."""
        return self.read_pass() if self.largest is None else self.largest

    def read_pass(self) -> StepMemory:
        """Return the memory of the pass that is followed."""
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
        result.weights |= branch.weights
    result.joined_bytes = reduce(Span.join, spans)
    passes = [branch.largest for branch in branches if branch.largest is not None]
    result.largest = reduce(_join_memory, passes) if passes else None
    if len(passes) < len(branches) and result.largest is not None:
        result.largest = _join_memory(result.largest, _NO_PASS)
    return result


def _max_memory(first: StepMemory, second: StepMemory) -> StepMemory:
    """Return the larger memory of two passes, both of which run."""
    return _combine(first, second, max(first.saved_bytes.low, second.saved_bytes.low))


def _join_memory(first: StepMemory, second: StepMemory) -> StepMemory:
    """Return the memory of two passes of which one runs."""
    return _combine(first, second, min(first.saved_bytes.low, second.saved_bytes.low))


def _combine(first: StepMemory, second: StepMemory, low: int) -> StepMemory:
    saved = _max(first.saved_bytes.high, second.saved_bytes.high)
    transient = _max(first.transient_bytes.high, second.transient_bytes.high)
    reason = first.reason or second.reason
    return StepMemory(saved_bytes=Span(low, saved), transient_bytes=Span(0, transient), reason=reason)


_NO_PASS = StepMemory(saved_bytes=NOTHING, transient_bytes=NOTHING)


def _max(first: int | None, second: int | None) -> int | None:
    """Return the larger of two sizes; ``None`` where one is not known."""
    return None if first is None or second is None else max(first, second)
