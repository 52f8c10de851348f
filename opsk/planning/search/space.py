"""Enumerates the legal plans of a request, counts them, and converts some of them to table rows.

A *plan* is a layout, a micro-batch and a choice of sequence parallelism (together a *node*), a sharding, a pipeline
schedule and a recomputation. The last three are independent of each other, so that a space of 10^8 plans is a few
thousand nodes and short lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

import numpy as np

from opsk.costmodel.rules import Rule, find_violations
from opsk.costmodel.table import RECOMPUTES, SCHEDULES, SHARDINGS, BoolColumn, IntColumn, PlanTable
from opsk.frameworks.limits import SequenceParallel
from opsk.planning.search.layouts import Layout, divisors, list_layouts
from opsk.planning.search.request import PlanRequest
from opsk.workload.plan import Precision, Recompute, Schedule, Sharding

Entries = tuple[tuple[int, ...], ...]
"""One list: its entries, each a value a column."""
_WHOLE_PRECISIONS = (Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16)
_OF_LAYOUT = ("tp", "pp", "cp", "dp", "ep", "etp", "first_stage_layers", "last_stage_layers")
_OF_NODE = (*_OF_LAYOUT, "micro_batch", "sequence_parallel")
_LISTS = ("shardings", "orders", "recomputes")
_ROW_LISTS = ("steps", "shardings", "recomputes")
_layout_sizes = attrgetter(*_OF_LAYOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """List ``i`` is entries ``starts[i]`` to ``starts[i + 1]`` of every column."""

    starts: IntColumn
    columns: Mapping[str, IntColumn]

    @classmethod
    def of(cls, names: Sequence[str], lists: Sequence[Sequence[tuple[int, ...]]]) -> Choices:
        """Return the choices whose list ``i`` is ``lists[i]``, each entry a value a name."""
        entries = np.array([entry for row in lists for entry in row], dtype=np.int64).reshape(-1, len(names))
        starts = np.concatenate(([0], np.cumsum([len(row) for row in lists], dtype=np.int64))).astype(np.int64)
        return cls(starts=starts, columns={name: entries[:, place] for place, name in enumerate(names)})

    def counts(self, lists: IntColumn) -> IntColumn:
        """Return the lengths of some lists."""
        return self.starts[lists + 1] - self.starts[lists]

    def only(self, entries: BoolColumn) -> Choices:
        """Return the choices with some entries of each list; lists may become empty."""
        before = np.concatenate(([0], np.cumsum(entries)))
        return Choices(
            starts=before[self.starts], columns={name: column[entries] for name, column in self.columns.items()}
        )

    def multiply(self, lists: IntColumn) -> tuple[IntColumn, IntColumn]:
        """Return every entry of ``lists[0]``, of ``lists[1]`` and so on: its list, and its index in the columns."""
        counts = self.counts(lists)
        owner = np.repeat(np.arange(lists.shape[0]), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return owner, np.arange(owner.shape[0]) - before + np.repeat(self.starts[lists], counts)


class Numbering:
    """Gives equal lists of entries the same number, counting from 0."""

    def __init__(self) -> None:
        self._numbers: dict[Entries, int] = {}

    @property
    def lists(self) -> tuple[Entries, ...]:
        """The lists that were numbered, in order."""
        return tuple(self._numbers)

    def of(self, entries: Entries) -> int:
        """Return the number of a list."""
        return self._numbers.setdefault(entries, len(self._numbers))


class Options:
    """The choices of a request, each computed once."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.orders = lru_cache(maxsize=None)(self._orders)
        self.shardings = lru_cache(maxsize=None)(self._shardings)
        self.recomputes = lru_cache(maxsize=None)(self._recomputes)
        self._splits = lru_cache(maxsize=None)(self._norm_splits)
        self._cuts = lru_cache(maxsize=None)(self._chunks)
        self._runs = lru_cache(maxsize=None)(self._is_order)

    def micro_batches(self, dp: int) -> list[int]:
        """Return the micro-batches that a replica's share of the batch consists of."""
        share = self.request.global_batch // dp
        return [size for size in divisors(share) if self.request.allows("micro_batch", size)]

    def sequence_parallel(self, layout: Layout, micro_batch: int) -> tuple[bool, ...]:
        """Return whether norms can be split over tp, and whether they need not be."""
        if self.request.template.precision in _WHOLE_PRECISIONS:
            return self._splits(layout.tp, layout.cp, 1, 0, 1, 1)
        return self._splits(layout.tp, layout.cp, micro_batch, layout.etp, layout.ep, layout.dp)

    def _norm_splits(self, tp: int, cp: int, micro_batch: int, etp: int, ep: int, dp: int) -> tuple[bool, ...]:
        """Return the same for the axes that it depends on in the number format of the plan."""
        request = self.request
        known = {
            SequenceParallel.EITHER: (False, True),
            SequenceParallel.WITH_TP: (tp > 1,),
            SequenceParallel.NEVER: (False,),
        }[request.limits.sequence_parallel]
        requested = request.fixed.get("sequence_parallel", (False, True))
        if tp == 1 and False in requested:
            requested = (False,)
        choices = [choice for choice in requested if choice in known]
        return tuple(choice for choice in choices if self._splits_tokens(tp, cp, choice, micro_batch, etp, ep, dp))

    def _splits_tokens(
        self, tp: int, cp: int, sequence_parallel: bool, micro_batch: int, etp: int, ep: int, dp: int
    ) -> bool:
        """Return whether tokens and widths can be split so, in the number format of the plan."""
        plan = self.request.plan(
            tp=tp, cp=cp, sequence_parallel=sequence_parallel, micro_batch=micro_batch, etp=etp, ep=ep, dp=dp
        )
        return not find_violations(self.request.model, plan, (Rule.TOKENS, Rule.LOW_PRECISION))

    def _orders(self, pp: int, first: int, last: int, micro_batches: int) -> tuple[tuple[int, int], ...]:
        """Return schedules, as codes, with their chunks a stage."""
        return tuple(self._each_order(pp, first, last, micro_batches))

    def _each_order(self, pp: int, first: int, last: int, micro_batches: int) -> Iterator[tuple[int, int]]:
        request = self.request
        free = request.limits.schedules if pp > 1 else (Schedule.ONE_F_ONE_B,)
        for schedule in SCHEDULES:
            if schedule not in request.fixed.get("schedule", free) or schedule not in request.limits.schedules:
                continue
            for vpp in self._cuts(pp, first, last, schedule is Schedule.ZERO_BUBBLE_V):
                if self._runs(pp, vpp, schedule, micro_batches):
                    yield SCHEDULES.index(schedule), vpp

    def _is_order(self, pp: int, vpp: int, schedule: Schedule, micro_batches: int) -> bool:
        """Return whether a schedule takes so many stages, chunks and micro-batches.

        What it does not take with the most convenient number, 2 pp, it takes with none.
        """
        if micro_batches != 2 * pp and not self._runs(pp, vpp, schedule, 2 * pp):
            return False
        plan = self.request.plan(pp=pp, vpp=vpp, schedule=schedule, micro_batches=micro_batches)
        return not find_violations(self.request.model, plan, (Rule.SCHEDULE,))

    def _chunks(self, pp: int, first: int, last: int, is_v: bool) -> list[int]:
        """Return the chunks that a stage's layers can be cut into; a V has two without interleaving."""
        request = self.request
        if pp == 1:
            return [1] if request.allows("vpp", 1) else []
        layers = request.model.layers + request.model.encoder_layers
        others = pp - (first > 0) - (last > 0)
        middle = (layers - first - last) // others if others else first
        sizes = {size for stage in (middle, middle + 1) for size in divisors(max(stage, 1))} if first or last else ()
        return [
            vpp
            for vpp in sorted(sizes or divisors(max(layers // pp, 1)))
            if request.allows("vpp", vpp)
            and (vpp == 1 or request.limits.interleaved or is_v)
            and self._splits_layers(pp, vpp, first, last)
        ]

    def _splits_layers(self, pp: int, vpp: int, first: int, last: int) -> bool:
        plan = self.request.plan(pp=pp, vpp=vpp, first_stage_layers=first, last_stage_layers=last)
        return not find_violations(self.request.model, plan, (Rule.LAYERS,))

    def _shardings(self, replicas: int, pp: int, *, is_alone: bool) -> tuple[tuple[int, int], ...]:
        """Return shardings, as codes, with the GPUs that share one set of states (0: all replicas).

        ``is_alone`` is true where dp is the only axis.
        """
        request, limits = self.request, self.request.limits
        known = limits.pipelined_shardings if pp > 1 else limits.shardings
        if request.model.experts:
            known &= limits.expert_shardings
        if replicas == 1:
            known |= {Sharding.NONE}
        elif limits.replicated_alone and not is_alone:
            known -= {Sharding.NONE}
        free = known if replicas > 1 else {Sharding.NONE}
        choices = []
        for sharding in SHARDINGS:
            if sharding not in request.fixed.get("sharding", free) or sharding not in known:
                continue
            for group in self._groups(replicas, sharding):
                plan = request.plan(dp=replicas, pp=pp, sharding=sharding, shard_gpus=group)
                if not find_violations(request.model, plan, (Rule.SHARDING, Rule.OFFLOAD)):
                    choices.append((SHARDINGS.index(sharding), group))
        return tuple(choices)

    def _groups(self, replicas: int, sharding: Sharding) -> list[int]:
        """Return the sizes of a sharding group."""
        request = self.request
        is_partial = request.limits.partial_sharding and sharding in request.limits.partial_shardings
        known = (0, *(size for size in divisors(replicas) if 1 < size < replicas)) if is_partial else (0,)
        requested = request.fixed.get("shard_gpus", known)
        return [size for size in requested if is_partial or size in (0, replicas)]

    def _recomputes(self, pp: int, first: int, last: int) -> tuple[tuple[int, int], ...]:
        """Return modes of recomputation, as codes, with the layers of a stage that they go for (0: all)."""
        request, limits = self.request, self.request.limits
        layers = request.model.layers + request.model.encoder_layers
        fullest = max(first, last, -(-layers // pp))
        choices = []
        for mode in RECOMPUTES:
            if mode not in limits.recomputes or not request.allows("recompute", mode):
                continue
            known = range(fullest + 1) if mode is Recompute.FULL and limits.recompute_layers else (0,)
            for some in request.fixed.get("recompute_layers", known[:fullest]):
                if some not in known:
                    continue
                plan = request.plan(
                    pp=pp,
                    first_stage_layers=first,
                    last_stage_layers=last,
                    recompute=mode,
                    recompute_layers=some,
                    sharding=Sharding.ZERO3,
                )
                if not find_violations(request.model, plan, (Rule.RECOMPUTE, Rule.OFFLOAD)):
                    choices.append((RECOMPUTES.index(mode), some))
        return tuple(choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All legal plans of a request.

    Parameters
    ----------
    nodes
        Columns of the nodes, and for each node the number of its lists of ``shardings``, ``orders``, ``recomputes``.
    shardings, orders, recomputes
        The lists, as codes: (sharding, shard_gpus), (schedule, vpp), (recompute, recompute_layers).
    """

    request: PlanRequest
    nodes: Mapping[str, IntColumn]
    shardings: Choices
    orders: Choices
    recomputes: Choices

    def __len__(self) -> int:
        """Return the number of nodes."""
        return int(self.nodes["tp"].shape[0])

    @property
    def size(self) -> int:
        """Number of plans."""
        return int(self.sizes.sum())

    @property
    def sizes(self) -> IntColumn:
        """Number of plans of each node."""
        sizes_: IntColumn = np.prod([getattr(self, name).counts(self.nodes[name]) for name in _LISTS], axis=0)
        return sizes_

    def only(self, nodes: IntColumn) -> Space:
        """Return the space of some nodes."""
        return Space(
            request=self.request,
            nodes={name: column[nodes] for name, column in self.nodes.items()},
            shardings=self.shardings,
            orders=self.orders,
            recomputes=self.recomputes,
        )

    def holding(self, axes: Mapping[str, Sequence[int]]) -> Space:
        """Return the plans whose axes have some of these values, enumerated ones as codes."""
        lists: dict[str, Choices] = {}
        is_left = np.ones(len(self), dtype=np.bool_)
        for name in _LISTS:
            choices: Choices = getattr(self, name)
            held = [np.isin(column, axes[axis]) for axis, column in choices.columns.items() if axis in axes]
            lists[name] = choices.only(np.logical_and.reduce(held)) if held else choices
            is_left &= lists[name].counts(self.nodes[name]) > 0
        for axis, column in self.nodes.items():
            if axis in axes:
                is_left &= np.isin(column, axes[axis])
        return Space(
            request=self.request,
            nodes={name: column[is_left] for name, column in self.nodes.items()},
            shardings=lists["shardings"],
            orders=lists["orders"],
            recomputes=lists["recomputes"],
        )

    def rows(self, nodes: IntColumn, **columns: IntColumn) -> PlanTable:
        """Return one row for each of ``nodes``, with further columns given."""
        request = self.request
        of_node = {name: self.nodes[name][nodes] for name in _OF_NODE}
        of_node["sequence_parallel"] = of_node["sequence_parallel"].astype(np.bool_)
        total = np.full(nodes.shape, request.global_batch)
        return PlanTable.repeat_with(request.template, nodes.shape[0], **{**of_node, "global_batch": total, **columns})

    def list_tables(self, *, rows: int) -> Iterator[PlanTable]:
        """Yield all plans, about ``rows`` at a time."""
        ends = np.cumsum(self.sizes)
        start = 0
        while start < len(self):
            before = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, before + rows, side="right")), start + 1)
            yield self._list_plans(np.arange(start, stop))
            start = stop

    def _list_plans(self, nodes: IntColumn) -> PlanTable:
        """Return all plans of some nodes."""
        owner, columns = nodes, dict[str, IntColumn]()
        for name in _LISTS:
            choices: Choices = getattr(self, name)
            place, entry = choices.multiply(self.nodes[name][owner])
            columns = {key: column[place] for key, column in columns.items()}
            columns |= {key: column[entry] for key, column in choices.columns.items()}
            owner = owner[place]
        return self.rows(owner, **columns)


def has_plans(request: PlanRequest) -> bool:
    """Return whether any plan is legal."""
    return next(_LayoutRows(request).rows(), None) is not None


def build_space(request: PlanRequest) -> Space:
    """Return all legal plans of a request; there may be none."""
    layouts = _LayoutRows(request)
    rows = np.array(list(layouts.rows()), dtype=np.int64).reshape(-1, len(_OF_LAYOUT) + len(_ROW_LISTS))
    columns = dict(zip((*_OF_LAYOUT, *_ROW_LISTS), rows.T, strict=True))
    steps = Choices.of(("micro_batch", "sequence_parallel", "orders"), layouts.numbers["steps"].lists)
    place, entry = steps.multiply(columns.pop("steps"))
    columns = {name: column[place] for name, column in columns.items()}
    columns |= {name: column[entry] for name, column in steps.columns.items()}
    return Space(
        request=request,
        nodes={name: columns[name] for name in (*_OF_NODE, *_LISTS)},
        shardings=Choices.of(("sharding", "shard_gpus"), layouts.numbers["shardings"].lists),
        orders=Choices.of(("schedule", "vpp"), layouts.numbers["orders"].lists),
        recomputes=Choices.of(("recompute", "recompute_layers"), layouts.numbers["recomputes"].lists),
    )


class _LayoutRows:
    """Lists the layouts as rows of numbers: sizes, then the number of the list of each choice.

    A *step* is a micro-batch, whether norms are split, and the number of a list of schedules.
    """

    def __init__(self, request: PlanRequest) -> None:
        self.request, self.options = request, Options(request)
        self.numbers = {name: Numbering() for name in (*_LISTS, "steps")}
        self._steps: dict[tuple[int, ...], int] = {}

    def rows(self) -> Iterator[tuple[int, ...]]:
        """Yield the row of every layout that has plans."""
        request = self.request
        if find_violations(request.model, request.plan(), (Rule.SIZE, Rule.ADAPTERS)) or unknown_words(request):
            return
        none = self.numbers["steps"].of(())
        for layout in list_layouts(request):
            stages = (layout.pp, layout.first_stage_layers, layout.last_stage_layers)
            is_alone = layout.tp * layout.pp * layout.cp == 1
            shardings = self.options.shardings(layout.dp * layout.cp, layout.pp, is_alone=is_alone)
            recomputes = self.options.recomputes(*stages)
            if not shardings or not recomputes:
                continue
            lists = self.numbers["shardings"].of(shardings), self.numbers["recomputes"].of(recomputes)
            if (steps := self._number_steps(layout)) != none:
                yield (*_layout_sizes(layout), steps, *lists)

    def _number_steps(self, layout: Layout) -> int:
        """Return the number of the list of a layout's steps."""
        is_low = self.request.template.precision not in _WHOLE_PRECISIONS
        experts = (layout.ep, layout.etp) if is_low else ()
        key = (layout.tp, layout.cp, layout.pp, layout.first_stage_layers, layout.last_stage_layers, *experts)
        if key not in self._steps:  # the other axes follow from these
            self._steps[key] = self.numbers["steps"].of(tuple(self._list_steps(layout)))
        return self._steps[key]

    def _list_steps(self, layout: Layout) -> Iterator[tuple[int, ...]]:
        options, share = self.options, self.request.global_batch // layout.dp
        for micro_batch in options.micro_batches(layout.dp):
            orders = options.orders(
                layout.pp, layout.first_stage_layers, layout.last_stage_layers, share // micro_batch
            )
            if not orders:
                continue
            number = self.numbers["orders"].of(orders)
            for split in options.sequence_parallel(layout, micro_batch):
                yield micro_batch, int(split), number


def unknown_words(request: PlanRequest) -> tuple[str, ...]:
    """Return the fixed fields that the framework cannot express."""
    template, limits = request.template, request.limits
    known = (
        ("precision", limits.precisions),
        ("states", limits.states),
        ("optimizer", limits.optimizers),
        ("offload", limits.offloads),
        ("loss", limits.losses),
    )
    return tuple(
        f"{limits.name} has no {name} {getattr(template, name)}, only {', '.join(sorted(values))}"
        for name, values in known
        if getattr(template, name) not in values
    )
