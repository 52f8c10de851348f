"""How long does a pipeline schedule take, and what does it keep, when its passes are simply played through?

Every schedule is written down as the order in which each GPU works on passes; a pass starts when its GPU is free and
what it needs is there. Nothing here knows a formula, so that formulas can be held against it. Messages take no time.

A pass is one of forward ``F``, gradient of the input ``B``, gradient of the weights ``W``, or the whole backward ``D``
(B and W in one) of a micro-batch on a chunk of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Pass(NamedTuple):
    """``chunk`` counts the model's pieces in the order of the forward pass."""

    kind: str
    micro_batch: int
    chunk: int


Order = list[tuple[Pass, ...]]
"""What one GPU does, in order; passes of one entry run at the same time (DualPipe)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of the passes of one chunk; ``together`` is a forward and a whole backward that overlap."""

    forward: float
    backward_input: float
    backward_weight: float
    together: float = 0.0

    def of(self, passes: tuple[Pass, ...]) -> float:
        """Return the seconds of an entry of an order."""
        if len(passes) > 1:
            return self.together
        whole = self.backward_input + self.backward_weight
        return {"F": self.forward, "B": self.backward_input, "W": self.backward_weight, "D": whole}[passes[0].kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a schedule did: seconds from start to end, and columns with an entry a GPU.

    ``start_s`` and ``end_s`` are those of the GPU's first and last pass, ``busy_s`` the seconds that it worked,
    ``kept`` the chunks whose activations it held at once at the peak, ``deferred`` those of them at that moment (the
    most, where there are several) that only waited for the gradient of their weights.
    """

    seconds: float
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    busy_s: tuple[float, ...]
    kept: tuple[int, ...]
    deferred: tuple[int, ...]

    @property
    def idle_s(self) -> float:
        """Seconds that the busiest GPU does not work, all of them starting and ending together."""
        return self.seconds - max(self.busy_s)

    @property
    def own_idle_s(self) -> float:
        """The longest wait of a GPU between its own first and last pass."""
        spans = zip(self.start_s, self.end_s, self.busy_s, strict=True)
        return max(end - start - busy for start, end, busy in spans)


def play(orders: list[Order], times: Times, *, chunks: int) -> Played:
    """Return what happens when every GPU works through its order.

    Raises
    ------
    AssertionError
        The orders wait for each other for ever.
    """
    ended: dict[Pass, float] = {}
    free, busy, place = [0.0] * len(orders), [0.0] * len(orders), [0] * len(orders)
    start = [float("inf")] * len(orders)
    moved = True
    while moved:
        moved = False
        for gpu, order in enumerate(orders):
            while place[gpu] < len(order):
                passes = order[place[gpu]]
                needs = [need for entry in passes for need in _needs(entry, chunks) if need not in passes]
                if any(need not in ended for need in needs):
                    break
                begin = max([free[gpu], *(ended[need] for need in needs)])
                start[gpu] = min(start[gpu], begin)
                free[gpu] = begin + times.of(passes)
                busy[gpu] += times.of(passes)
                for entry in passes:
                    ended[entry] = free[gpu]
                    if entry.kind == "D":
                        ended[entry._replace(kind="B")] = free[gpu]
                place[gpu] += 1
                moved = True
    assert all(place[gpu] == len(order) for gpu, order in enumerate(orders)), "the orders wait for each other"
    peaks = [_peak(order) for order in orders]
    return Played(
        seconds=max(free),
        start_s=tuple(start),
        end_s=tuple(free),
        busy_s=tuple(busy),
        kept=tuple(kept for kept, _ in peaks),
        deferred=tuple(deferred for _, deferred in peaks),
    )


def _needs(entry: Pass, chunks: int) -> Iterator[Pass]:
    """Yield the passes that must have ended."""
    if entry.kind == "W":
        yield entry._replace(kind="B")
    elif entry.kind == "F":
        if entry.chunk % chunks > 0:
            yield entry._replace(chunk=entry.chunk - 1)
    elif (entry.chunk + 1) % chunks == 0:
        yield entry._replace(kind="F")
    else:
        yield entry._replace(kind="B", chunk=entry.chunk + 1)


def _peak(order: Order) -> tuple[int, int]:
    """Return the chunks kept at the peak, and how many of them only wait for the gradient of their weights."""
    kept = waiting = 0
    peak = (0, 0)
    for passes in order:
        kept += sum(entry.kind == "F" for entry in passes)
        peak = max(peak, (kept, waiting))
        waiting += sum((entry.kind == "B") - (entry.kind == "W") for entry in passes)
        kept -= sum(entry.kind in "WD" for entry in passes)
    return peak


def gpipe(stages: int, micro_batches: int) -> list[Order]:
    """All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)."""
    passes = [("F", index) for index in range(micro_batches)] + [("D", index) for index in range(micro_batches)]
    return [[(Pass(kind, index, stage),) for kind, index in passes] for stage in range(stages)]


def one_f_one_b(stages: int, micro_batches: int) -> list[Order]:
    """One forward, one backward (Narayanan et al. 2021, arXiv 2104.04473, figure 4 top)."""
    return interleaved(stages, micro_batches, 1)


def interleaved(stages: int, micro_batches: int, chunks: int) -> list[Order]:
    """Each GPU has ``chunks`` pieces, worked on in groups of micro-batches (same, figure 4 bottom).

    A group has ``stages`` micro-batches; where they are no multiple of it the groups are larger, as PyTorch's
    ``ScheduleInterleaved1F1B`` and Megatron Core's ``microbatch_group_size_per_vp_stage`` have it.
    """
    group = micro_batches // max(1, micro_batches // stages)
    return [_interleaved(stages, micro_batches, chunks, stage, group) for stage in range(stages)]


def _interleaved(stages: int, micro_batches: int, chunks: int, stage: int, group: int) -> Order:
    """Return what one GPU does: forwards ahead, then one forward and one backward, then the rest."""
    turns = [
        (chunk, index)
        for first in range(0, micro_batches, group)
        for chunk in range(chunks)
        for index in range(first, min(first + group, micro_batches))
    ]
    forwards = [Pass("F", index, chunk * stages + stage) for chunk, index in turns]
    backwards = [Pass("D", index, (chunks - 1 - chunk) * stages + stage) for chunk, index in turns]
    ahead = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * group
    return _one_by_one(forwards, backwards, min(ahead, len(forwards)))


def _one_by_one(forwards: list[Pass], backwards: list[Pass], ahead: int) -> Order:
    """Return ``ahead`` forwards, then forwards and backwards in turn."""
    order: Order = [(entry,) for entry in forwards[:ahead]]
    for index, entry in enumerate(backwards):
        order += [(forward,) for forward in forwards[ahead + index : ahead + index + 1]]
        order.append((entry,))
    return order


def zero_bubble_h1(stages: int, micro_batches: int) -> list[Order]:
    """1F1B whose weight gradients come later, the later the later the stage (Qi et al. 2023, figure 3 top)."""
    return [_split_backward(stage, micro_batches, stages - stage - 1, stage) for stage in range(stages)]


def zero_bubble_h2(stages: int, micro_batches: int) -> list[Order]:
    """The same with nearly twice the forwards ahead (Qi et al. 2023, figure 3 bottom)."""
    return [_split_backward(stage, micro_batches, 2 * (stages - stage - 1), 2 * stage) for stage in range(stages)]


def _split_backward(stage: int, micro_batches: int, ahead: int, lag: int) -> Order:
    """Return 1F1B with W of a micro-batch after B of the micro-batch ``lag`` later; the rest of W at the end."""
    forwards = [Pass("F", index, stage) for index in range(micro_batches)]
    backwards = [Pass("B", index, stage) for index in range(micro_batches)]
    order: Order = []
    weights = 0
    for entry in _one_by_one(forwards, backwards, min(ahead, micro_batches)):
        order.append(entry)
        if entry[0].kind == "B" and entry[0].micro_batch >= lag:
            order.append((Pass("W", weights, stage),))
            weights += 1
    return order + [(Pass("W", index, stage),) for index in range(weights, micro_batches)]


def zero_bubble_v(stages: int, micro_batches: int) -> list[Order]:
    """Two chunks a GPU, folded as a V: the first GPU has the first and the last (Qi et al. 2023, section 6).

    The order is that of PyTorch's ``ScheduleZBVZeroBubble``; at least 2 ``stages`` - 1 micro-batches.
    """
    return [_folded(stages, micro_batches, stage) for stage in range(stages)]


def _folded(stages: int, micro_batches: int, stage: int) -> Order:
    """Return what one GPU does of a V: ``down`` is its chunk on the way in, ``up`` the one on the way out."""
    down, up = stage, 2 * stages - 1 - stage
    work = _Work(micro_batches)
    for _ in range(2 * (stages - stage) - 1):
        work.do("F", down)
    for _ in range(stage):
        work.do("F", up)
        work.do("F", down)
    for _ in range(stages - stage):
        work.do("FBW", up)
    while work.remains("F", up) or work.remains("F", down):
        if work.remains("F", down):
            work.do("F", down)
        work.do("BW", down)
        work.do("FBW", up)
    for _ in range(stage):
        work.do("B", down)
        work.do("B", up)
    for _ in range(stages - stage):
        work.do("BW", down)
    for chunk in (up, down):
        while work.remains("W", chunk):
            work.do("W", chunk)
    return work.order


def dual_pipe(stages: int, micro_batches: int) -> list[Order]:
    """Half of the micro-batches enter at either end, a forward of one and a backward of the other overlapping.

    Source: DeepSeek-V3 report (arXiv 2412.19437), figure 5; the order is that of DeepSeek's public ``DualPipe``.
    The stages are even in number, and so are the micro-batches, at least 2 ``stages``. A micro-batch that enters at the
    other end has ``stages`` added to its chunks.
    """
    return [_from_both_ends(stages, micro_batches, stage) for stage in range(stages)]


def _from_both_ends(stages: int, micro_batches: int, stage: int) -> Order:
    """Return what one GPU does: ``near`` is the direction whose end is nearer, ``far`` the other one."""
    half, from_end = stages // 2, min(stage, stages - 1 - stage)
    to_middle = half - from_end - 1
    far_chunk, near_chunk = stages + stages - 1 - stage, stage
    near, far = (near_chunk, far_chunk) if stage < half else (far_chunk, near_chunk)
    work = _Work(micro_batches // 2)
    for _ in range(2 * to_middle):
        work.do("F", near)
    for _ in range(from_end + 1):
        work.do("F", near)
        work.do("F", far)
    for _ in range(to_middle):
        work.do("BWF", far)
    for turn in range(micro_batches // 2 - stages + from_end + 1):
        if turn == 0 and to_middle == 0:
            work.do("F", near)
            work.do("D", far)
        else:
            work.together(near, far)
        work.together(far, near)
    for _ in range(to_middle):
        work.do("D", far)
        work.together(far, near)
    _drain(work, near, far, from_end)
    for _ in range(to_middle):
        work.weight()
        work.do("B", near)
    for _ in range(from_end + 1):
        work.weight()
    return work.order


def _drain(work: _Work, near: int, far: int, from_end: int) -> None:
    """Do the backwards that no forward goes with; the later half of them leave their weight gradients for the end."""
    kind = "D"
    for turn in range(from_end + 1):
        is_half = turn == (from_end + 1) // 2
        kind = "B" if is_half and from_end % 2 == 1 else kind
        work.do(kind, far)
        kind = "B" if is_half and from_end % 2 == 0 else kind
        work.do(kind, near)


class _Work:
    """An order while it is written down: passes of a kind take micro-batches in turn, chunk by chunk."""

    def __init__(self, micro_batches: int) -> None:
        self.order: Order = []
        self._count = micro_batches
        self._weights = 0
        self._done: dict[tuple[str, int], int] = {}

    def remains(self, kind: str, chunk: int) -> bool:
        """Tell whether a chunk has passes of a kind to do."""
        return self._done.get((kind, chunk), 0) < self._count

    def do(self, kinds: str, chunk: int) -> None:
        """Work on the next micro-batch of each kind, one after another."""
        for kind in kinds:
            self.order.append((self._next(kind, chunk),))

    def weight(self) -> None:
        """Take the weight gradient that waits longest."""
        waiting = [entry for passes in self.order for entry in passes if entry.kind == "B"]
        self.order.append((waiting[self._weights]._replace(kind="W"),))
        self._weights += 1

    def together(self, forward: int, backward: int) -> None:
        """Work on a forward and a whole backward at the same time."""
        self.order.append((self._next("F", forward), self._next("D", backward)))

    def _next(self, kind: str, chunk: int) -> Pass:
        """Return the next pass of a kind; a whole backward counts as both of its parts."""
        place = max(self._done.get((part, chunk), 0) for part in ("BD" if kind in "BD" else kind))
        for part in "BWD" if kind == "D" else kind:
            self._done[part, chunk] = self._done.get((part, chunk), 0) + 1
        return Pass(kind, place, chunk)
