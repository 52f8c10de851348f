"""Lists the pairs of GPUs that exchange data in a step, and how much: the heat map of a plan's traffic.

Ranks are numbered with tensor parallelism innermost, then data, then pipeline parallelism, and fill HB domain after
domain. Tensor parallelism is a ring; stages send to the next and back; data parallelism is a ring, or a ring inside
each HB domain and one along each rail where a domain holds several replicas of a stage (the rail-only paper, arXiv
2307.12169, equation 1). Context and expert parallelism are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opsk.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The degrees of a plan, and the GPUs of an HB domain."""

    tp: int
    dp: int
    pp: int
    hb_domain: int

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tp * self.dp * self.pp


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What one GPU sends to another in a step [bytes]; ``axis`` is tp, dp or pp."""

    source: int
    target: int
    size_bytes: float
    axis: str


def list_pairs(
    layout: Layout, *, tp_bytes: float, pp_bytes: float, gradient_bytes: float, ranks: int | None = None
) -> Iterator[Pair]:
    """Yield the pairs of the first ``ranks`` GPUs, all of them unless stated.

    Parameters
    ----------
    tp_bytes, pp_bytes
        What a GPU sends for tensor parallelism, and to both neighbouring stages together, in a step [bytes].
    gradient_bytes
        The gradients of a GPU, which are all-reduced once [bytes].

    Raises
    ------
    InputError
        An HB domain and tensor parallelism of which neither divides the other.
    """
    if layout.hb_domain % layout.tp and layout.tp % layout.hb_domain:
        raise InputError(
            f"tensor parallelism of {layout.tp} GPUs does not divide an HB domain of {layout.hb_domain}",
            hint=f"--hb-domain {layout.tp}",
        )
    limit = min(ranks or layout.gpus, layout.gpus)
    for rank in range(limit):
        for pair in _list_sent_pairs(layout, rank, tp_bytes, pp_bytes, gradient_bytes):
            if pair.target < limit:
                yield pair


def _list_sent_pairs(
    layout: Layout, rank: int, tp_bytes: float, pp_bytes: float, gradient_bytes: float
) -> Iterator[Pair]:
    """Yield what one GPU sends."""
    tp, stage = layout.tp, layout.tp * layout.dp
    member, replica, own_stage = rank % tp, rank // tp % layout.dp, rank // stage
    if tp > 1:
        target = rank - member + (member + 1) % tp
        yield Pair(source=rank, target=target, size_bytes=tp_bytes, axis="tp")
    for other in (own_stage - 1, own_stage + 1):
        if 0 <= other < layout.pp:
            yield Pair(source=rank, target=rank + (other - own_stage) * stage, size_bytes=pp_bytes / 2, axis="pp")
    inside = _count_replicas_inside(layout)
    across = layout.dp // inside
    base = own_stage * stage + member
    place, domain = replica % inside, replica // inside
    if inside > 1:
        target = base + (domain * inside + (place + 1) % inside) * tp
        yield Pair(source=rank, target=target, size_bytes=2 * (inside - 1) / inside * gradient_bytes, axis="dp")
    if across > 1:
        target = base + ((domain + 1) % across * inside + place) * tp
        size_bytes = 2 * (across - 1) / across * gradient_bytes / inside
        yield Pair(source=rank, target=target, size_bytes=size_bytes, axis="dp")


def _count_replicas_inside(layout: Layout) -> int:
    """Return how many replicas of a stage an HB domain holds; a number that divides all of them."""
    held = max(min(layout.hb_domain // layout.tp, layout.dp), 1)
    return next(size for size in range(held, 0, -1) if layout.dp % size == 0)
