"""On a real fabric: the node with the swapped HCAs is the last to be taken, and is taken rightly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.app.inputs.fabric_files import read_dumps
from opsk.fabric.rails import find_rails
from opsk.planning.remap.remap import remap
from opsk.planning.remap.situation import Hosts, Situation, prepare
from opsk.planning.remap.values import Option, OptionKind, Terms
from opsk.planning.routing.fabric_routes import build_routes
from opsk.slurm.commands.remap_commands import SlurmSite
from opsk.workload.plan import Plan
from tests.fakes.remap_jobs import MODEL, dead_gpu

pytestmark = pytest.mark.shared

SWAPPED = "b08-p1-dgx-08-c01"
"""``EXPECTED.json``: HCA-5 and HCA-6 of this node are exchanged."""


@pytest.fixture(scope="module")
def situation(shared: Path) -> Situation:
    fabric = read_dumps([shared / "data/real/ib_fabric/ndr_dgx_rail_40sw.ibnetdiscover"])
    rails = find_rails(fabric)
    unit = next(nodes for nodes in rails.units if SWAPPED in nodes)
    others = [node for node in unit if node != SWAPPED]
    used, free = others[:4], others[4:]
    return prepare(
        MODEL,
        Plan(tp=8, dp=4, global_batch=4),
        rails,
        [(used[rank // 8], rank % 8) for rank in range(32)],
        Hosts(node_gpus=8, free=[SWAPPED, *free], batch_host=used[0]),
        routes=build_routes(fabric, rails),
    )


def taken(situation: Situation) -> Option:
    terms = Terms(job="7", site=SlurmSite(release=(24, 11)))
    answer = remap(situation, dead_gpu(situation.job.nodes[1], 3), terms)
    return next(option for option in answer.options if option.kind is OptionKind.SPARE_NODE)


def test_a_clean_node_is_taken_before_the_one_with_swapped_hcas(situation: Situation) -> None:
    option = taken(situation)
    assert SWAPPED not in option.nodes
    assert not option.gpu_order
    assert option.predicted.rail_local_fraction == 1.0


def test_the_swapped_node_takes_over_with_its_gpus_exchanged(situation: Situation) -> None:
    """Two GPUs share an HCA, and the last two HCAs are exchanged: local ranks 4 to 7 take GPUs 6, 7, 4, 5."""
    alone = situation.idle.copy()
    for number, node in enumerate(situation.job.nodes):
        if node != SWAPPED and situation.free[number]:
            alone[number] = False
    option = taken(replace(situation, idle=alone))
    assert SWAPPED in option.nodes
    assert option.gpu_order == ((SWAPPED, "0,1,2,3,6,7,4,5"),)
    assert option.predicted.rail_local_fraction == 1.0
