"""Axes share links: no step is shorter than what its links and its memory carry, whatever the plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, LinkEfficiency, SoftwareEfficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.costmodel.time.communication import Traffic
from opsk.costmodel.time.step_time import share_links
from opsk.hardware import catalog
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding, Software
from opsk.workload.public_models.lookup import public_model
from tests.fakes.training_runs import gpt, parts

ENDLESS = 1e12
HIDES_ALL = Efficiency(
    gpu=DEFAULT.gpu,
    links=replace(DEFAULT.links, hb_hop_s=0.0, nic_hop_s=0.0),
    software={
        family: SoftwareEfficiency(
            dp_overlap=1.0, fsdp_overlap=1.0, tp_overlap=1.0, ep_overlap=1.0, cp_overlap=1.0, pp_overlap=1.0
        )
        for family in Software
    },
)
"""The most optimistic software: every axis hides beside all computation."""


def only(link: str, efficiency: Efficiency) -> Efficiency:
    """Return efficiencies with which a collective takes what one class of link needs, the other being endless."""
    links = efficiency.links
    hb, nic = (links.hb_fraction, ENDLESS) if link == "hb" else (ENDLESS, links.nic_fraction)
    return replace(efficiency, links=LinkEfficiency(hb_fraction=hb, nic_fraction=nic, hb_hop_s=0.0, nic_hop_s=0.0))


def model_named(name: str) -> ModelShape:
    found = public_model(name)
    assert found is not None
    return found


MODELS = st.sampled_from(
    [gpt(layers=24, hidden=2048, heads=16), *map(model_named, ("llama3-8b", "mixtral-8x7b", "qwen3-235b-a22b"))]
)
CLUSTERS = st.sampled_from(["superpod-h100", "superpod-a100", "gb200-nvl72"]).map(catalog.cluster)
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw plans that send much and overlap all of it."""
    dp, pp, micro_batch = draw(st.sampled_from([1, 2, 8, 32])), draw(POWERS), draw(st.sampled_from([1, 4]))
    return Plan(
        tp=draw(POWERS),
        pp=pp,
        vpp=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        cp=draw(st.sampled_from([1, 2, 8])),
        ep=draw(st.sampled_from([1, dp])),
        dp=dp,
        sharding=draw(st.sampled_from(list(Sharding))),
        recompute=draw(st.sampled_from(list(Recompute))),
        schedule=draw(st.sampled_from([Schedule.ONE_F_ONE_B, Schedule.GPIPE])),
        software=draw(st.sampled_from(list(Software))),
        tp_overlap=True,
        micro_batch=micro_batch,
        global_batch=micro_batch * dp * draw(st.integers(1, 8)),
    )


@pytest.mark.parametrize("efficiency", [DEFAULT, HIDES_ALL], ids=["shipped", "hides all"])
@given(model=MODELS, plan=plans(), cluster=CLUSTERS)
def test_a_step_is_no_shorter_than_what_its_links_carry(
    efficiency: Efficiency, model: ModelShape, plan: Plan, cluster: ClusterSpec
) -> None:
    table = PlanTable.of([plan])
    step_s = predict(model, table, cluster, efficiency).time.step_s.expected[0]
    for link in ("hb", "nic"):
        busy = predict(model, table, cluster, only(link, efficiency)).time.communication
        assert sum(float(np.ravel(column)[0]) for column in busy.values()) <= step_s * (1 + 1e-9), link


@given(model=MODELS, plan=plans(), cluster=CLUSTERS)
def test_a_step_is_no_shorter_than_its_memory_takes_to_read_the_weights(
    model: ModelShape, plan: Plan, cluster: ClusterSpec
) -> None:
    # once for forward and once for the gradient of the input, each micro-batch, 16 bits each, at the data sheet's rate
    _, _, count = parts(model, plan)
    held = float((count.dense + count.experts)[:, 0].min())
    ends = float(count.ends[:, 0].max())
    read_bytes = 2 * 2 * max(held - ends, 0.0) * plan.micro_batches
    step_s = predict(model, PlanTable.of([plan]), cluster, HIDES_ALL).time.step_s.expected[0]
    assert step_s >= read_bytes / cluster.node.gpu.hbm_bytes_per_s


@given(model=MODELS, plan=plans(), cluster=CLUSTERS)
def test_what_shows_is_what_the_windows_leave(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> None:
    time = predict(model, PlanTable.of([plan]), cluster, HIDES_ALL).time
    for axis in ("tp", "cp", "ep"):
        left = max(float(np.ravel(time.communication[axis])[0] - np.ravel(time.windows[axis])[0]), 0.0)
        assert float(np.ravel(time.components[axis])[0]) == pytest.approx(left, rel=1e-9, abs=1e-12)


def traffic(total: float, window: float, *, hb: float = 0.0, nic: float = 0.0) -> Traffic:
    return Traffic(
        total=np.array([total]),
        exposed=np.array([max(total - window, 0.0)]),
        window=np.array([window]),
        hb=np.array([hb]),
        nic=np.array([nic]),
    )


def shown(axes: dict[str, Traffic], compute_s: float) -> dict[str, float]:
    return {name: float(axis.exposed[0]) for name, axis in share_links(axes, np.array([compute_s])).items()}


def test_two_axes_on_one_nic_hide_what_it_carries_beside_the_widest_window() -> None:
    # each would hide 8 s beside 10 s of computation; together 16 s of NIC, 6 of them show, half of each
    axes = {"ep": traffic(8.0, 10.0, nic=8.0), "dp": traffic(8.0, 9.0, nic=8.0)}
    assert shown(axes, 10.0) == {"ep": pytest.approx(3.0), "dp": pytest.approx(3.0)}


def test_axes_on_different_links_do_not_disturb_each_other() -> None:
    axes = {"tp": traffic(8.0, 10.0, hb=8.0), "dp": traffic(8.0, 9.0, nic=8.0)}
    assert shown(axes, 10.0) == {"tp": 0.0, "dp": 0.0}


def test_what_shows_already_needs_no_window() -> None:
    # 12 s of which 2 show: 10 s beside 10 s of computation, and nothing is left for the other axis
    axes = {"ep": traffic(12.0, 10.0, nic=12.0), "dp": traffic(1.0, 10.0, nic=1.0)}
    assert sum(shown(axes, 10.0).values()) == pytest.approx(3.0)
