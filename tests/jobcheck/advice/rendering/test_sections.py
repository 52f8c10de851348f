"""What advice says of nodes that are free now and of who is on their links.

Sixteen nodes in four units of four; with one spine, four HCAs of a leaf share one cable up, so jobs across units meet.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.config import SiteConfig
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.sections import render_network, render_sharing
from opsk_jobcheck.cluster_state.node_constraints import ANY_NODES, NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.watcher import StateBuilder
from tests.fakes.launch_scripts import megatron_script
from tests.fakes.live_cluster import CountingSlurm, round_of, small_adviser, training_job

FLAGS = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --global-batch-size 16 --micro-batch-size 1"
ACROSS = tuple(f"n{number}" for number in (0, 1, 4, 5, 8, 9, 12, 13))


@pytest.fixture(scope="module")
def adviser() -> Adviser:
    return small_adviser(spines=1)


def state_of(adviser: Adviser, *jobs: JobRecord, **flags: tuple[str, ...]) -> LiveState:
    return StateBuilder(SiteConfig(), adviser, CountingSlurm()).state(round_of(*jobs, **flags))


def analysis(adviser: Adviser, nodes: int, live: LiveState | None, wanted: NodeConstraints = ANY_NODES) -> Advice:
    script = megatron_script(f"{FLAGS} --sequence-parallel --use-distributed-optimizer")
    workload = read_script(script, file="job.sh", request=SlurmRequest(nodes=nodes))
    advice = replace(adviser, live=live).advise(workload, wanted)
    assert advice.verdict is not Verdict.UNKNOWN
    return advice


def test_without_slurm_the_fabric_is_advised_on_as_ever(adviser: Adviser) -> None:
    advice = analysis(adviser, 8, None)
    assert str(render_network(advice)).startswith("8 nodes need 2 leaf groups; 100% of the traffic")
    assert render_sharing(advice) is None
    assert document(advice)["interference"]["why"]


def test_free_nodes_of_one_unit_are_found_and_asked_for(adviser: Adviser) -> None:
    # all units but the last are taken in part
    held = training_job(1, ["n0", "n4", "n8", "n9"])
    advice = analysis(adviser, 4, state_of(adviser, held))
    assert advice.placement.placement is not None
    assert sorted(advice.placement.placement.nodes) == ["n12", "n13", "n14", "n15"]
    line = str(render_network(advice))
    assert line.startswith("4 of 12 free nodes fit under one leaf group: ask for --switches=1; ")
    assert document(advice)["placement"]["is_free"]


@pytest.mark.parametrize(("topology", "flags"), [("block", ("--segment=4",)), ("flat", ()), (None, ("--switches=1",))])
def test_what_is_asked_for_depends_on_how_slurm_sees_the_fabric(
    adviser: Adviser, topology: str | None, flags: tuple[str, ...]
) -> None:
    live = replace(state_of(adviser), topology=topology)
    assert analysis(adviser, 4, live).placement.slurm_flags == flags


def test_too_few_free_nodes_are_counted_and_the_fabric_is_shown(adviser: Adviser) -> None:
    live = state_of(adviser, training_job(1, ACROSS), n2=("DRAIN",), n3=("PLANNED",))
    advice = analysis(adviser, 8, live)
    assert str(render_network(advice)).startswith("8 nodes need 2 leaf groups")
    assert "; 6 of 8 nodes are free now; " in str(render_network(advice))
    assert render_sharing(advice) is None
    shown = document(advice)
    assert (shown["placement"]["is_free"], shown["placement"]["free"]["nodes"]) == (False, 6)
    assert "too few" in shown["interference"]["why"]


def test_scattered_free_nodes_are_compared_with_compact_ones(adviser: Adviser) -> None:
    advice = analysis(adviser, 4, state_of(adviser, training_job(1, [f"n{n}" for n in range(16) if n % 4])))
    # a ring sends as much over the one cable up of a leaf as over one HCA, and that is as fast
    start = "4 of 4 free nodes lie in 4 leaf groups, "
    assert str(render_network(advice)).startswith(f"{start}no slower than the most compact ones;")
    sharing = advice.placement.sharing
    assert sharing is not None
    faster = replace(sharing, compact_step_s=sharing.interference.alone_s / 1.1)
    slower = replace(advice, placement=replace(advice.placement, sharing=faster))
    told = f"{start}10% slower than the most compact ones (--switches=1 waits for those);"
    assert str(render_network(slower)).startswith(told)


def test_a_job_on_the_same_links_is_named_with_what_both_lose(adviser: Adviser) -> None:
    advice = analysis(adviser, 8, state_of(adviser, training_job(4711, ACROSS)))
    line = str(render_sharing(advice))
    assert line.startswith("traffic of job 4711 on leaf")
    assert "'s uplinks: " in line
    assert "% slower, it up to " in line
    shown = document(advice)["interference"]
    assert [job["job"] for job in shown["jobs"]] == ["4711"]
    low, high = shown["slowdown"]["low"], shown["slowdown"]["high"]
    assert 0 < low <= high
    assert shown["predicted"]["slowdown"] == pytest.approx(low)
    assert (shown["running"]["jobs"], shown["running"]["known_as"]) == (1, {"plan": 1})


def test_a_job_that_costs_nothing_is_named_only_when_asked_for(adviser: Adviser) -> None:
    advice = analysis(adviser, 8, state_of(adviser, training_job(4711, ACROSS, step_s=100.0)))
    assert render_sharing(advice) is None
    assert str(render_sharing(advice, even_if_harmless=True)).endswith("'s uplinks: no slower")


def test_quiet_nodes_are_preferred_and_the_rest_is_said(adviser: Adviser) -> None:
    # one unit is free as a whole; nodes of two units would meet the job on their leaves' cables
    held = training_job(4711, ["n0", "n1", "n4", "n5", "n8", "n9"])
    advice = analysis(adviser, 4, state_of(adviser, held))
    line = str(render_sharing(advice))
    assert line.startswith("no link with anybody on these nodes; on others up to ")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (NodeConstraints(unclear="--constraint counts nodes"), "--constraint counts nodes"),
        (NodeConstraints(reservation="night"), "reservation"),
        (NodeConstraints(only=("n1",)), "--nodelist"),
    ],
)
def test_why_free_nodes_are_not_known_is_said(adviser: Adviser, wanted: NodeConstraints, why: str) -> None:
    advice = analysis(adviser, 4, state_of(adviser), wanted)
    assert "free nodes not known: " in str(render_network(advice))
    assert why in str(render_network(advice))


def test_partition_and_exclusion_of_the_job_count(adviser: Adviser) -> None:
    live = state_of(adviser)
    assert analysis(adviser, 4, live, NodeConstraints(partitions=("gpu",))).placement.free_nodes == 16
    assert analysis(adviser, 4, live, NodeConstraints(partitions=("cpu",))).placement.free_nodes == 0
    few = NodeConstraints(exclude=frozenset(f"n{number}" for number in range(4)))
    assert analysis(adviser, 4, live, few).placement.free_nodes == 12
    elsewhere = replace(adviser, default_partition="cpu")
    assert analysis(elsewhere, 4, live).placement.free_nodes == 0


def test_a_job_without_a_partition_goes_where_slurm_says_unless_the_site_says_otherwise(adviser: Adviser) -> None:
    live = replace(state_of(adviser), default_partition="cpu")
    assert analysis(adviser, 4, live).placement.free_nodes == 0
    assert analysis(adviser, 4, live, NodeConstraints(partitions=("gpu",))).placement.free_nodes == 16
    assert analysis(replace(adviser, default_partition="gpu"), 4, live).placement.free_nodes == 16


def test_an_old_state_is_said_to_be_old_and_a_very_old_one_not_used(adviser: Adviser) -> None:
    live = state_of(adviser)
    assert "(as of 2 min ago)" in str(render_network(analysis(adviser, 4, replace(live, age_s=130.0))))
    line = str(render_network(analysis(adviser, 4, replace(live, age_s=700.0))))
    assert "; free nodes not known: Slurm has not answered for 12 min; " in line


def test_while_loads_are_worked_out_free_nodes_are_known_already(adviser: Adviser) -> None:
    live = replace(state_of(adviser), wire=None, around={})
    advice = analysis(adviser, 4, live)
    assert advice.placement.is_free
    assert "worked out" in document(advice)["interference"]["why"]


def test_one_node_has_no_network_but_may_be_free(adviser: Adviser) -> None:
    busy = state_of(adviser, training_job(1, [f"n{number}" for number in range(16)]))
    assert render_network(analysis(adviser, 1, busy)) == "all traffic stays inside one node; 0 of 1 node is free now"
    assert render_network(analysis(adviser, 1, state_of(adviser))) == "all traffic stays inside one node"
