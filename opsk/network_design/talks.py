"""Compares the statements of the TITAN and the NTT talk on networks with the values computed here.

SK Telecom, "Optimizing Supercomputer for Large-Scale Training" (OCP 2023): the same training of GPT-3 175B with 8, 4, 2
and 1 NIC a node. A. Tateiwa (NTT), "Accelerating collective communication in large-scale AI training" (IEICE
Information Networks, 29 July 2024): all-reduces with aggregation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from opsk.costmodel.collectives import networks
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware.spec import ClusterSpec
from opsk.network_design.paper import Compared
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software

TITAN_S = {8: 32.209, 4: 32.492, 2: 37.105, 1: 50.368}
"""NICs a node to the time of an iteration that the TITAN talk prints [s]."""
_GPUS, _BATCH = 1024, 1536
RECIPE = Plan(
    tp=8, pp=16, dp=8, sharding=Sharding.NONE, sequence_parallel=True, recompute=Recompute.FULL,
    precision=Precision.FP16, software=Software.MEGATRON, micro_batch=1, global_batch=_BATCH,
)  # fmt: skip
"""The talk states no plan: GPT-3 175B on 1,024 GPUs as Narayanan et al. 2021 trained it."""
_UNSTATED = "plan, batch and GPUs are not stated; taken: 1,024 GPUs, batch 1,536, "


@dataclass(frozen=True, slots=True, kw_only=True)
class Nics:
    """One number of NICs a node: the measured step, and the steps of the recipe and of the best plan there [s]."""

    nics: int
    measured_s: float
    recipe_s: float
    best_s: float
    best_plan: Plan


def compute_titan_steps(
    plans: BestPlans, model: ModelShape, cluster: ClusterSpec, efficiency: Efficiency = DEFAULT
) -> Iterator[Nics]:
    """Yield every number of NICs of the talk; ``model`` is GPT-3 175B, ``cluster`` TITAN as the catalogue has it."""
    model_request = ModelRequest(model=model, template=replace(RECIPE, tp=1, pp=1, dp=1, global_batch=1))
    for nics, measured_s in TITAN_S.items():
        built = replace(cluster, node=replace(cluster.node, nics=nics))
        time = predict(model, PlanTable.of([RECIPE]), built, efficiency).time
        best = plans.best(model_request, built, gpus=_GPUS, global_batch=_BATCH)
        yield Nics(
            nics=nics,
            measured_s=measured_s,
            recipe_s=float(np.broadcast_to(time.step_s.expected, 1)[0]),
            best_s=best.step_s,
            best_plan=best.plan,
        )


def compare_titan(points: tuple[Nics, ...]) -> Iterator[Compared]:
    """Yield the slow-down against eight NICs: measured, of the recipe, and of the best plan of each number of NICs."""
    whole = points[0]
    for word, field_name in (("with Megatron's recipe", "recipe_s"), ("each with its own best plan", "best_s")):
        for point in points:
            computed = getattr(point, field_name) / getattr(whole, field_name)
            stated = point.measured_s / whole.measured_s
            yield Compared(
                section="TITAN, NICs a node",
                what=f"{point.nics} NIC{'s' if point.nics > 1 else ''} of 200 Gbit/s, {word}: step over that with 8",
                stated=stated,
                computed=computed,
                unit="times",
                agrees=abs(computed - stated) < 0.05,
                by="near",
                why=f"{_UNSTATED}{getattr(point, field_name):.1f} s against {point.measured_s:.1f} s"
                + ("; few NICs shared by all GPUs of a node may give less than their rate" if point.nics < 4 else ""),
            )
        steps = [getattr(point, field_name) for point in points]
        saved = [later - earlier for earlier, later in pairwise(steps)]
        yield Compared(
            section="TITAN, NICs a node",
            what=f"halving NICs costs more each time, {word}: last over first halving",
            stated=(TITAN_S[1] - TITAN_S[2]) / (TITAN_S[4] - TITAN_S[8]),
            computed=saved[-1] / saved[0] if saved[0] else float("inf"),
            agrees=saved == sorted(saved) and saved[-1] > saved[0],
            by="sign",
            why="steps of " + ", ".join(f"{step:.1f} s" for step in steps),
        )


def compare_ntt() -> Iterator[Compared]:
    """Compare the NTT talk's numbers on all-reduces over circuits, and on aggregation."""
    transfers = (
        ("ring of 8 workers: transfers one after the other", 14, networks.ring_transfers(8)),
        ("the ring with streaming NICs", 7, networks.streamed_transfers(8, interfaces=2)),
        ("the best topology of 4 interfaces with streaming NICs", 3, networks.streamed_transfers(8, interfaces=4)),
        ("128 workers, 4 interfaces: aggregators of one tree", 63,
         networks.tree_aggregators(128, aggregator_interfaces=4)),
        ("128 workers, 4 interfaces: aggregators that make full trees faster than rings", 63,
         _fewest_aggregators(networks.full_tree_bandwidth)),
    )  # fmt: skip
    for what, stated, computed in transfers:
        yield Compared(
            section="NTT, circuits", what=what, stated=stated, computed=computed, unit="count",
            agrees=computed == stated,
        )  # fmt: skip
    yield Compared(
        section="NTT, circuits", what="the same where aggregators take a part of the array", stated=None,
        computed=_fewest_aggregators(networks.partial_bandwidth), unit="count",
        why="the talk's own method needs fewer than full trees; it prints no number",
    )  # fmt: skip
    for name, cost, stated_share in (("ring", networks.ring_all_reduce_cost, 2 * 63 / 64),
                                     ("tree", networks.tree_all_reduce_cost, 2 * 63 / 64),
                                     ("in the network", networks.switch_all_reduce_cost, 1.0)):  # fmt: skip
        steps, share = cost(64)
        yield Compared(
            section="NTT, aggregation", what=f"64 workers, {name}: array lengths that each sends", stated=stated_share,
            computed=share, unit="K", agrees=share == stated_share,
            why=f"{steps:.0f} step{'' if steps == 1 else 's'} one after the other",
        )  # fmt: skip
    sent = networks.transfer_time_s(1.0, workers=8, interfaces=4, bytes_per_s=1.0)
    yield Compared(
        section="NTT, circuits", what="8 workers, 4 interfaces: time of the bytes", stated=0.4375, computed=sent,
        unit="K/b", agrees=sent == 0.4375,
    )  # fmt: skip
    shared = networks.server_all_reduce_s(1.0, workers=4, servers=4, worker_bytes_per_s=1.0, server_bytes_per_s=1.0)
    alone = networks.server_all_reduce_s(1.0, workers=4, servers=0, worker_bytes_per_s=1.0, server_bytes_per_s=1.0)
    yield Compared(
        section="NTT, aggregation", what="Optcast, 4 workers and 4 servers: faster than the ring", stated=1.5,
        computed=alone / shared, unit="times", agrees=abs(alone / shared - 1.5) < 0.01,
        why="Optcast's README: 50 % speed improvement",
    )  # fmt: skip


def _fewest_aggregators(bandwidth: Callable[..., float]) -> int:
    """Return how many aggregators 128 workers of 4 interfaces need until ``bandwidth`` exceeds that of rings."""
    links = {"workers": 128, "interfaces": 4, "aggregator_interfaces": 4}
    rings = bandwidth(aggregators=0, **links)
    return next(count for count in range(1, 128) if bandwidth(aggregators=count, **links) > rings)
