from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.costmodel.efficiency.efficiency import Efficiency, SoftwareEfficiency
from opsk.costmodel.floors import (
    Floors,
    family_bytes,
    family_floors,
    node_floors,
    order_bytes,
    order_floors,
    schedule_floors,
)
from opsk.costmodel.predict import predict
from opsk.costmodel.table import RECOMPUTES, PlanTable
from opsk.hardware import catalog
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.space import build_space
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Recompute, Sharding, Software, States
from tests.fakes.training_runs import gpt
from tests.opsk.planning.search.random_requests import requests

GPUS = st.sampled_from([1, 2, 4, 6, 8, 16, 24, 48, 64, 256])
BATCHES = st.sampled_from([1, 2, 6, 8, 24, 64, 96, 480])
H100 = catalog.cluster("superpod-h100")
SMALL = gpt(layers=8, hidden=1024, heads=16, flash=True)
EXPERTS = replace(SMALL, layers=16, experts=8, top_k=2, expert_ffn=1024, vocab=1024)
MAMBA2 = {
    "mixer": "mamba2",
    "mixer_heads": 32,
    "mixer_head_dim": 64,
    "mixer_groups": 8,
    "mixer_state": 128,
    "mixer_conv": 4,
}
BOUNDS = ("node", "family", "order")


def _some_plans(request: PlanRequest, chooser: np.random.Generator, *, nodes: int, rows: int) -> Iterator[PlanTable]:
    """Yield plans of some nodes of a request's space."""
    space = build_space(request)
    if not len(space):
        return
    chosen = chooser.choice(len(space), size=min(nodes, len(space)), replace=False)
    for table in space.only(np.sort(chosen)).list_tables(rows=rows):
        some = chooser.choice(len(table), size=min(rows, len(table)), replace=False)
        columns = {name: np.broadcast_to(getattr(table, name), len(table)) for name in PlanTable.__slots__}
        yield PlanTable(**{name: column[some] for name, column in columns.items()})


def _floors(request: PlanRequest, plans: PlanTable, widest: np.ndarray) -> dict[str, Floors]:
    """Return the floors of the families that plans belong to, with what is open to these at its first choice."""
    zeros = np.zeros(len(plans), dtype=np.int64)
    unrepeated = replace(plans, recompute=zeros, recompute_layers=zeros)
    family = replace(unrepeated, schedule=zeros, vpp=zeros + 1)
    node = replace(family, sharding=widest, shard_gpus=zeros)
    model, cluster, efficiency = request.model, request.cluster, request.efficiency
    families = family_floors(model, family, cluster, efficiency, family_bytes(model, family, cluster, efficiency))
    order = order_floors(model, unrepeated, cluster, efficiency, order_bytes(model, unrepeated, cluster, efficiency))
    return {
        "node": node_floors(model, node, cluster, efficiency),
        "family": families,
        "schedule": schedule_floors(families, unrepeated),
        "order": order,
        "recomputing": order.recomputing(_recomputed_share(model, plans)),
    }


def _recomputed_share(model: ModelShape, plans: PlanTable) -> np.ndarray:
    """Return the share of the layers that a plan recomputes fully."""
    some = np.minimum(plans.recompute_layers * plans.pp / (model.layers + model.encoder_layers), 1.0)
    is_full = plans.recompute == RECOMPUTES.index(Recompute.FULL)
    return np.where(is_full, np.where(plans.recompute_layers > 0, some, 1.0), 0.0)


def _assert_floors_hold(request: PlanRequest, plans: PlanTable, widest: np.ndarray) -> None:
    predicted = predict(request.model, plans, request.cluster, request.efficiency)
    step_s, needed_bytes = predicted.time.step_s.expected, predicted.memory.needed_bytes.expected
    assert np.isfinite(step_s).all()
    assert np.isfinite(needed_bytes).all()
    step_j = predicted.energy.step_j.expected
    for name, floors in _floors(request, plans, widest).items():
        bounds = (floors.step_s, step_s), (floors.needed_bytes, needed_bytes), (floors.step_j, step_j)
        for floor, real in bounds:
            worst = int(np.argmax(floor / real))
            assert (floor <= real).all(), (name, floor[worst], real[worst], request, plans.row(worst))


@settings(max_examples=50, deadline=None)
@given(requests(GPUS, BATCHES), st.integers(0, 2**32 - 1))
def test_no_plan_goes_below_the_floors_of_its_family(request: PlanRequest, seed: int):
    chooser = np.random.default_rng(seed)
    for plans in _some_plans(request, chooser, nodes=6, rows=500):
        _assert_floors_hold(request, plans, chooser.integers(plans.sharding, len(Sharding)))


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        # dense first layers, slower or faster than those with experts: interleaving deals them out anew
        (replace(EXPERTS, dense_layers=4, ffn=65536), Plan(global_batch=64)),
        (replace(EXPERTS, dense_layers=12, expert_imbalance=4.0), Plan(global_batch=64)),
        # the same, and a head that ZB-V has on the first stage
        (replace(EXPERTS, dense_layers=4, vocab=256000, expert_imbalance=4.0), Plan(global_batch=64)),
        # recomputed activations wait less for the host, and lie there for the most part anyway
        (SMALL, Plan(global_batch=64, offload=Offload.ACTIVATIONS, software=Software.PYTORCH)),
        # a quarter of a layer of the decoder on a stage, beside those of the encoder
        (
            replace(SMALL, layers=2, encoder_layers=6, encoder_seq=2048, flash_attention=False),
            Plan(global_batch=64, states=States.AUTOCAST),
        ),
        # on average, half a layer with experts on a stage of one, which is much larger than the dense half; 16-bit
        # copies of weights lie there in the forward only, which else would need less than the end of the backward
        (
            replace(EXPERTS, layers=8, dense_layers=4, dense_interleaved=True, expert_ffn=8192, ffn=64, top_k=8),
            Plan(global_batch=64, states=States.AUTOCAST),
        ),
        # a layer that keeps less than its input, but for the attention
        (
            replace(SMALL, heads=16, head_dim=16, kv_heads=1, ffn=512, norms_per_layer=0, dropout=False),
            Plan(global_batch=64, precision=Precision.FP8, software=Software.MEGATRON_CORE),
        ),
        # hybrids: mixers in most layers, layers that are one block alone, and experts behind a delta rule
        (replace(SMALL, mixer_layers=7, **MAMBA2), Plan(global_batch=64)),
        (replace(SMALL, mixer_layers=3, mlp_layers=4, norms_per_layer=1, **MAMBA2), Plan(global_batch=64)),
        (
            replace(
                EXPERTS, mixer_layers=12, dense_layers=4, attention_gate=True, **{**MAMBA2, "mixer": "gated-deltanet"}
            ),
            Plan(global_batch=64, software=Software.PYTORCH),
        ),
    ],
    ids=["slow-dense", "fast-dense", "large-head", "offloaded", "encoder", "half", "thin", "mamba", "lone", "delta"],
)
def test_floors_hold_where_what_is_open_moves_things_between_stages(model: ModelShape, plan: Plan):
    request = PlanRequest(model=model, cluster=H100, template=plan, gpus=8, global_batch=64)
    for plans in _some_plans(request, np.random.default_rng(1), nodes=60, rows=6000):
        _assert_floors_hold(request, plans, plans.sharding)


@pytest.mark.parametrize("bound", BOUNDS)
def test_one_gpu_with_nothing_open_is_at_its_floor(bound: str):
    # no other GPU, stage or sharding: what is left out of the floor of the time is nothing
    request = PlanRequest(model=SMALL, cluster=H100, template=Plan(global_batch=1), gpus=1, global_batch=1)
    plan = PlanTable.of([Plan(global_batch=1)])
    floor = _floors(request, plan, plan.sharding)[bound]
    predicted = predict(SMALL, plan, H100)
    assert floor.step_s == pytest.approx(predicted.time.step_s.expected, rel=1e-9)
    assert 0.5 * predicted.memory.needed_bytes.expected < floor.needed_bytes


def test_a_floor_rises_by_what_recomputation_takes_at_least():
    # with no communication and nothing hidden, full recomputation of one stage repeats just the forward of its layers
    plain = Efficiency(software={software: SoftwareEfficiency() for software in Software})
    request = PlanRequest(
        model=SMALL, cluster=H100, template=Plan(global_batch=4), gpus=1, global_batch=4, efficiency=plain
    )
    full = PlanTable.of([Plan(global_batch=4, recompute=Recompute.FULL)])
    floors = _floors(request, full, full.sharding)
    predicted = predict(SMALL, full, H100, plain)
    assert floors["recomputing"].step_s == pytest.approx(predicted.time.step_s.expected, rel=1e-9)
    assert floors["order"].step_s < floors["recomputing"].step_s


def test_floors_of_parts_are_those_of_the_whole():
    request = PlanRequest(model=SMALL, cluster=H100, template=Plan(global_batch=8), gpus=8, global_batch=8)
    plans = next(_some_plans(request, np.random.default_rng(2), nodes=4, rows=50))
    whole = _floors(request, plans, plans.sharding)["family"]
    rows = np.arange(len(plans))
    joined = Floors.concatenate([whole.only(rows[:20]), whole.only(rows[20:])])
    assert joined.step_s.tolist() == whole.step_s.tolist()
    assert joined.needed_bytes.tolist() == whole.needed_bytes.tolist()
    assert len(Floors.concatenate([]).step_s) == 0
