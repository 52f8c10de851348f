"""A fabric on which two units meet on one cable a rail, and a job whose traffic can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import find_rails
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import JobShape
from opsk.planning.placement.step_model import COMMUNICATION_ONLY
from opsk.planning.ranks import RankOrder
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.traffic import StepBytes
from opsk.workload.plan import Plan

SENT_BYTES = 50e9
"""One second of an NDR link at 50 GB/s."""


def one_cable_fabric(servers: int = 0, nodes: int = 8) -> Fabric:
    """Two units of four nodes of two HCAs; each of the four leaves has one cable to the only spine."""
    names = [f"n{number}" for number in range(nodes)] + [f"oss{number}" for number in range(servers)]
    return rail_optimized_fabric(
        nodes=nodes + servers, hcas=2, leaves=(nodes + servers) // 2, spines=1, names=names, speed="NDR"
    )


def wires_on(fabric: Fabric) -> FabricLinks:
    rails = find_rails(fabric)
    return build_links(fabric, rails, build_routes(fabric, rails))


@pytest.fixture(scope="session")
def fabric() -> Fabric:
    return one_cable_fabric()


@pytest.fixture(scope="session")
def fabric_links(fabric: Fabric) -> FabricLinks:
    return wires_on(fabric)


@pytest.fixture(scope="session")
def pair() -> JobShape:
    """Two replicas of two GPUs, each rank sends one second's worth of a link to its like: nothing but that."""
    return JobShape(
        plan=Plan(tp=2, dp=2, global_batch=2),
        sent=StepBytes(
            tp=np.zeros(1), cp=np.zeros(1), ep=np.zeros(1), dp=np.array([SENT_BYTES]), expert_dp=np.zeros(1),
            pp_forward=0.0, pp_wrap=0.0, embedding=0.0,
        ),
        step=COMMUNICATION_ONLY,
        gpus_per_node=2,
        node_gpus=2,
        order=RankOrder.TP_CP_EP_DP_PP,
    )  # fmt: skip
