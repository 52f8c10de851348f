"""Defines the memory that a training step uses beyond the states of its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsk_jobcheck.scripts.frameworks.own_models.values import Span

NO_LIMIT = Span(0, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Memory of the tensors of one forward and backward pass of one process, in bytes.

    Weights, their gradients, the states of the optimizer, buffers and what the allocator reserves are not in it.

    Parameters
    ----------
    saved_bytes
        What the operations of the forward pass save for the backward pass, and what names of the program hold then.
        Each storage counts once.
    transient_bytes
        What comes on top of it at the peak: the gradients that one operation of the backward pass reads and writes, or
        what a checkpointed part saves when it is computed again. The peak is between ``saved_bytes.low`` and the sum
        of both upper limits.
    reason
        Why there is no upper limit; empty where there is one.
    """

    saved_bytes: Span
    transient_bytes: Span
    reason: str = ""


def join_steps(steps: Sequence[StepMemory], reasons: Sequence[str]) -> StepMemory | None:
    """Return the memory of the largest of several steps; ``None`` where there is none."""
    if not steps:
        return StepMemory(saved_bytes=NO_LIMIT, transient_bytes=NO_LIMIT, reason=reasons[0]) if reasons else None
    reason = next((text for text in (*(step.reason for step in steps), *reasons) if text), "")
    if not reason and any(step.saved_bytes.high == 0 for step in steps):
        reason = "a step of the training saves nothing that was found"
    spans = [
        Span(
            max(getattr(step, name).low for step in steps),
            None if reason else max(getattr(step, name).high or 0 for step in steps),
        )
        for name in ("saved_bytes", "transient_bytes")
    ]
    return StepMemory(saved_bytes=spans[0], transient_bytes=spans[1], reason=reason)
