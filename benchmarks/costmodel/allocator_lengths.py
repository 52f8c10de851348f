"""Measures how much more than it uses PyTorch's caching allocator holds where micro-batches differ in length.

Plays fine-tuning steps through a model of the allocator (c10/cuda/CUDACachingAllocator.cpp without expandable
segments): sizes are rounded up to 512 bytes, the smallest free block that fits is taken and split where more than 1 MiB
is left, neighbours that are free join, and segments come in 20 MiB or multiples of 2 MiB and stay. Lengths are
log-normal with a median of 400 tokens, cut. Prints, for every case, what is reserved over the peak of what is allocated
with fixed and with varied lengths, and the median share that variation adds to what passes between forward and
backward, which is ``VARIED_LENGTHS_FRACTION`` of `opsk.costmodel.memory.peak`.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import product
from statistics import median

_MIB = 1 << 20
_CASES = ((32, 4096, 11008, 152_000), (32, 4096, 11008, 64_000), (32, 4096, 14336, 32_000), (28, 3072, 8192, 128_256))
"""Layers, hidden, MLP and vocabulary of Qwen, Yi, Mistral 7B and Llama 3.2 3B."""
_LENGTHS = ((512, 1), (2048, 1), (768, 4), (8192, 1))
"""Cut-off and sequences of a micro-batch."""
_STEPS, _REPEATS = 150, 3
_LOG_MEDIAN, _LOG_SIGMA = 6.0, 0.8


@dataclass(eq=False)
class Block:
    """A part of a segment, with its neighbours."""

    size: int
    before: Block | None = None
    after: Block | None = None
    asked: int = 0

    def __lt__(self, other: Block) -> bool:
        """Order blocks of one size by nothing but their identity, as addresses would."""
        return id(self) < id(other)


@dataclass
class Allocator:
    """The caching allocator: what it reserved, what is allocated, and the peak of that [bytes]."""

    reserved: int = 0
    allocated: int = 0
    peak: int = 0
    free: list[tuple[int, Block]] = field(default_factory=list)

    def take(self, size: float) -> Block:
        """Return a block of at least ``size`` bytes."""
        asked = max(-(-int(size) // 512) * 512, 512)
        self.allocated += asked
        self.peak = max(self.peak, self.allocated)
        place = bisect_left(self.free, asked, key=_size)
        if place == len(self.free):
            segment = 20 * _MIB if asked < 10 * _MIB else -(-asked // (2 * _MIB)) * 2 * _MIB
            self.reserved += segment
            block = Block(segment)
        else:
            block = self.free.pop(place)[1]
        if block.size - asked > _MIB:
            rest = Block(block.size - asked, before=block, after=block.after)
            if rest.after:
                rest.after.before = rest
            block.after, block.size = rest, asked
            insort(self.free, (rest.size, rest))
        block.asked = asked
        return block

    def give(self, *blocks: Block) -> None:
        """Give blocks back, and join them with free neighbours."""
        for given in blocks:
            block = given
            self.allocated -= block.asked
            block.asked = 0
            if block.after and not block.after.asked:
                block = self._join(block, block.after, gone=block.after)
            if block.before and not block.before.asked:
                block = self._join(block.before, block, gone=block.before)
            insort(self.free, (block.size, block))

    def _join(self, first: Block, second: Block, *, gone: Block) -> Block:
        """Return two neighbours as one; ``gone`` leaves the list of free blocks."""
        del self.free[self.free.index((gone.size, gone))]
        first.size += second.size
        first.after = second.after
        if first.after:
            first.after.before = first
        return first


def _size(entry: tuple[int, Block]) -> int:
    """Return the size of an entry of the list of free blocks."""
    return entry[0]


def step(memory: Allocator, tokens: int, case: tuple[int, int, int, int], *, recomputes: bool) -> int:
    """Play one step; return the bytes that are kept between forward and backward."""
    layers, hidden, ffn, vocab = (size * tokens if place else size for place, size in enumerate(case))
    layer = [2 * hidden] * 6 + [4 * hidden] * 2 + [2 * ffn] * 4
    kept: list[list[Block]] = []
    for _ in range(layers):
        inside = [memory.take(size) for size in layer]
        if recomputes:
            memory.give(*inside)
            inside = [memory.take(2 * hidden)]
        kept.append(inside)
    bytes_kept = memory.allocated
    gradient = _loss(memory, hidden, vocab)
    for inside in reversed(kept):
        again = [memory.take(size) for size in layer] if recomputes else []
        work = [memory.take(size) for size in (2 * ffn, 2 * ffn, 2 * ffn, 2 * hidden)]
        following = memory.take(2 * hidden)
        memory.give(*again, *work, gradient, *inside)
        gradient = following
    memory.give(gradient)
    return bytes_kept


def _loss(memory: Allocator, hidden: int, vocab: int) -> Block:
    """Play logits and cross entropy of HuggingFace's models; return the gradient of the last layer's output."""
    logits = memory.take(2 * vocab)
    copied = memory.take(4 * vocab)
    memory.give(logits)
    shifted, softmax = memory.take(4 * vocab), memory.take(4 * vocab)
    memory.give(copied, shifted)
    of_loss, of_softmax = memory.take(4 * vocab), memory.take(4 * vocab)
    memory.give(of_loss, softmax)
    padded = memory.take(4 * vocab)
    memory.give(of_softmax)
    of_logits = memory.take(2 * vocab)
    memory.give(padded)
    gradient = memory.take(2 * hidden)
    memory.give(of_logits)
    return gradient


def main() -> None:
    """Play all cases and print what they hold."""
    shares = []
    for seed, (case, recomputes, (cut, batch)) in enumerate(product(_CASES, (True, False), _LENGTHS)):
        fixed = Allocator()
        for _ in range(20):
            kept = step(fixed, cut * batch, case, recomputes=recomputes)
        ratios = []
        for repeat in range(_REPEATS):
            lengths, varied = random.Random(100 * seed + repeat), Allocator()
            for _ in range(_STEPS):
                tokens = max(min(int(lengths.lognormvariate(_LOG_MEDIAN, _LOG_SIGMA)), cut) for _ in range(batch))
                step(varied, max(tokens, 16) * batch, case, recomputes=recomputes)
            ratio = varied.reserved / varied.peak
            passing = 1.0 - kept / fixed.peak
            shares.append((ratio - fixed.reserved / fixed.peak) / passing)
            ratios.append(f"{ratio:.2f}")
        words = "recomputed" if recomputes else "kept"
        print(case, words, f"cut {cut} x {batch}: fixed {fixed.reserved / fixed.peak:.2f}, varied", *ratios)
    print(f"median of what variation adds to what passes: {median(shares):.2f}")


if __name__ == "__main__":
    main()
