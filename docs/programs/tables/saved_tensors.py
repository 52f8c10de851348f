"""Counts what a model stores for its backward on tensors without data, storage by storage, weights apart.

What autograd saves is counted by ``torch.autograd.graph.saved_tensors_hooks``. The difference between two batches is
what one sample stores; what both store are copies of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

SMALL, LARGE = 2, 4
"""Samples of the two batches; batch norm needs two."""


@dataclass(slots=True)
class Saved:
    """Bytes that autograd saves, each storage once."""

    own: set[int]
    storages: dict[int, tuple[Any, int]] = field(default_factory=dict)
    part: int = 0

    def pack(self, tensor: Any) -> Any:
        """Count a saved tensor."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.own:
            self.storages[storage._cdata] = (storage, storage.nbytes())
        return tensor

    @property
    def total(self) -> int:
        """All of it."""
        return sum(size for _, size in self.storages.values())

    def find_largest(self, other: Saved) -> int:
        """Return the largest storage whose size another batch does not have too: copies of weights have the same."""
        same = {size for _, size in other.storages.values()}
        return max((size for _, size in self.storages.values() if size not in same), default=0)


counting: list[Saved] = []
flop = [0]
PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d)


def add_flop(module: Any, inputs: Any, output: Any) -> None:
    """Add what a product or a convolution works: 2 FLOP for each weight of each output."""
    flop[0] += 2 * output.numel() * module.weight[0].numel()


@contextmanager
def autocast(*, is_on: bool) -> Iterator[None]:
    """Cast as on a GPU, which need not be there."""
    torch.set_autocast_enabled("cuda", is_on)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


def count(model: Any, inputs: Callable[[int], Any], batch: int, *, is_16_bit: bool) -> Saved:
    """Return what one forward saves."""
    own = {part.untyped_storage()._cdata for part in (*model.parameters(), *model.buffers())}
    saved = Saved(own=own)
    counting.append(saved)
    given = inputs(batch)
    with (
        autocast(is_on=is_16_bit),
        torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor),
    ):
        _ = model(**given) if isinstance(given, dict) else model(*given)
    torch.clear_autocast_cache()
    counting.pop()
    return saved


def measure_sample(model: Any, inputs: Callable[[int], Any], *, is_16_bit: bool) -> tuple[int, int, int]:
    """Return what a sample stores, what it stores in its largest part, and in its largest tensor [bytes]."""
    small, large = (count(model, inputs, batch, is_16_bit=is_16_bit) for batch in (SMALL, LARGE))
    step = LARGE - SMALL
    return (large.total - small.total) // step, (large.part - small.part) // step, large.find_largest(small) // LARGE


def make_images(size: int, batch: int) -> tuple[Any, ...]:
    """Return the images of a batch, as the arguments of a model."""
    return (torch.empty(batch, 3, size, size),)
