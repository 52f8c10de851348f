"""Defines the memory that a training step uses beyond the states of its models."""

from __future__ import annotations

from dataclasses import dataclass

from opsk_jobcheck.scripts.frameworks.own_models.values import Span


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
