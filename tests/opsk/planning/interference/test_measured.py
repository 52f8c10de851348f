"""Two units of four nodes of two HCAs at 50 GB/s, one cable a leaf."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Cable, Fabric, Hca, Switch
from opsk.fabric.graph import find_hca_links, find_isl_cables
from opsk.fabric.rails import find_rails
from opsk.planning.interference.contention import interference
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import JobShape, Load, LoadKind, default_load
from opsk.planning.interference.measured import (
    MeasuredRates,
    PortRate,
    StorageRates,
    at_hcas,
    background,
    measured_load,
    measured_storage,
    storage_load,
    storage_servers,
)
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.routing.fabric_routes import build_routes

TEN = PortRate(sent_bytes_per_s=10e9, received_bytes_per_s=10e9)


def of_nodes(fabric_links: FabricLinks, *nodes: str) -> MeasuredRates:
    return MeasuredRates(hcas={hca.guid: TEN for node in nodes for hca in fabric_links.rails.attachments[node]})


def test_a_job_of_unknown_plan_is_taken_to_send_to_its_next_node(fabric_links: FabricLinks) -> None:
    """n0, n1, n4 in a ring: n1 to n4 goes up, n4 to n0 comes back: each leaf carries 10 GB/s once up and once down."""
    load = measured_load("x", fabric_links, ("n0", "n1", "n4"), of_nodes(fabric_links, "n0", "n1", "n4"))
    assert load is not None
    assert load.kind is LoadKind.MEASURED
    between = [
        part for link, part in zip(load.links, load.utilisation, strict=True) if not fabric_links.is_hca(int(link))
    ]
    assert between == pytest.approx([0.2] * 8)
    at_hcas_ = [part for link, part in zip(load.links, load.utilisation, strict=True) if fabric_links.is_hca(int(link))]
    assert at_hcas_ == pytest.approx([0.2] * 12)


def test_a_job_within_a_unit_loads_no_cable_between_switches(fabric_links: FabricLinks) -> None:
    load = measured_load("x", fabric_links, ("n0", "n1"), of_nodes(fabric_links, "n0", "n1"))
    assert load is not None
    assert all(fabric_links.is_hca(link) for link in load.links.tolist())


def test_nothing_measured_is_no_load(fabric_links: FabricLinks) -> None:
    assert measured_load("x", fabric_links, ("n0", "n1"), of_nodes(fabric_links, "n5")) is None


def test_a_switch_port_tells_of_the_hca_that_it_faces(fabric_links: FabricLinks, fabric: Fabric) -> None:
    """What the switch sends the HCA receives."""
    link = find_hca_links(fabric)[0]
    rates = MeasuredRates(
        switch_ports={(link.switch, link.switch_port): PortRate(sent_bytes_per_s=1.0, received_bytes_per_s=2.0)}
    )
    assert at_hcas(rates, fabric).hcas == {link.hca: PortRate(sent_bytes_per_s=2.0, received_bytes_per_s=1.0)}


def test_what_no_job_explains_is_background(fabric_links: FabricLinks, fabric: Fabric, pair: JobShape) -> None:
    """All cables carry 30 GB/s both ways, 60 %. A job that explains all of leaf 0's and more leaves it out."""
    rates = MeasuredRates(
        switch_ports={
            (guid, port): PortRate(sent_bytes_per_s=30e9, received_bytes_per_s=30e9)
            for cable in find_isl_cables(fabric)
            for guid, port in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port))
        }
    )
    nothing = RunningLoads.of(fabric_links.links, ())
    alone = background(fabric_links, fabric, rates, nothing)
    assert alone is not None
    assert alone.utilisation == pytest.approx(np.full(8, 0.6))
    explained = nothing.with_load(default_load("a", fabric_links, pair, ("n0", "n4")))
    assert background(fabric_links, fabric, rates, explained) is None


def test_one_end_of_a_cable_is_enough(fabric_links: FabricLinks, fabric: Fabric) -> None:
    """The spine's port receives what the leaf sends."""
    cable = find_isl_cables(fabric)[0]
    rates = MeasuredRates(switch_ports={(cable.b_guid, cable.b_port): PortRate(received_bytes_per_s=25e9)})
    load = background(fabric_links, fabric, rates, RunningLoads.of(fabric_links.links, ()))
    assert load is not None
    assert [
        (fabric_links.ends(link), part) for link, part in zip(load.links.tolist(), load.utilisation, strict=True)
    ] == [((cable.a_guid, cable.b_guid), pytest.approx(0.5))]


READ = StorageRates(read_bytes_per_s=40e9, write_bytes_per_s=0.0)


def made() -> Fabric:
    names = [f"n{number}" for number in range(6)] + ["oss0", "oss1"]
    return rail_optimized_fabric(nodes=8, hcas=2, leaves=8, spines=1, names=names, speed="NDR")


def numbered(fabric: Fabric) -> FabricLinks:
    rails = find_rails(fabric)
    return build_links(fabric, rails, build_routes(fabric, rails))


@pytest.fixture(scope="module")
def cabled() -> FabricLinks:
    return numbered(made())


def used(fabric_links: FabricLinks, load: Load) -> dict[tuple[str, str], float]:
    """Utilisation by the names of both ends."""
    names = {guid: switch.description for guid, switch in made().switches.items()}
    names |= {hca.guid: f"{hca.node}/{hca.device.split('/')[0]}" for hca in fabric_links.hcas}
    return {
        (names.get(ends[0], ends[0]), names.get(ends[1], ends[1])): float(part)
        for link, part in zip(load.links.tolist(), load.utilisation.tolist(), strict=True)
        for ends in [fabric_links.ends(link)]
    }


def test_servers_are_told_by_their_role(cabled: FabricLinks) -> None:
    assert storage_servers(cabled) == ("oss0", "oss1")


def test_reads_run_from_all_servers_to_all_hcas_of_the_nodes(cabled: FabricLinks) -> None:
    """40 GB/s by four HCAs of servers: 10 GB/s each, 20 % of 50 GB/s. Leaves 6 and 7 carry half of it up each: 40 %.
    Two nodes of unit 0 take it with four HCAs, 10 GB/s each; leaf 0 and 1 bring half of it down each.
    """
    load = storage_load("storage", cabled, ("oss0", "oss1"), ("n0", "n1"), READ)
    assert load is not None
    assert load.kind is LoadKind.STORAGE
    parts = used(cabled, load)
    expected = {
        **{(f"oss{server}/mlx5_{hca}", f"leaf{6 + hca}"): 0.2 for server in (0, 1) for hca in (0, 1)},
        **{(f"leaf{6 + hca}", "spine0"): 0.4 for hca in (0, 1)},
        **{("spine0", f"leaf{hca}"): 0.4 for hca in (0, 1)},
        **{(f"leaf{hca}", f"n{node}/mlx5_{hca}"): 0.2 for node in (0, 1) for hca in (0, 1)},
    }
    assert parts == pytest.approx(expected)


def test_writes_run_the_other_way(cabled: FabricLinks) -> None:
    write = StorageRates(read_bytes_per_s=0.0, write_bytes_per_s=40e9)
    load = storage_load("storage", cabled, ("oss0", "oss1"), ("n0", "n1"), write)
    there = storage_load("storage", cabled, ("oss0", "oss1"), ("n0", "n1"), READ)
    assert load is not None
    assert there is not None
    backwards = {ends[::-1]: part for ends, part in used(cabled, there).items()}
    assert used(cabled, load) == pytest.approx(backwards)


def test_counters_say_which_server_does_the_work(cabled: FabricLinks) -> None:
    guid = cabled.elsewhere["oss1"][0].guid
    rates = MeasuredRates(hcas={guid: PortRate(sent_bytes_per_s=25e9, received_bytes_per_s=5e9)})
    measured = measured_storage(cabled, ("oss0", "oss1"), rates)
    assert measured == StorageRates(read_bytes_per_s=25e9, write_bytes_per_s=5e9)
    load = storage_load("storage", cabled, ("oss0", "oss1"), ("n0",), measured, rates)
    assert load is not None
    parts = used(cabled, load)
    assert parts["oss1/mlx5_0", "leaf6"] == pytest.approx(0.5)
    assert parts["leaf6", "oss1/mlx5_0"] == pytest.approx(0.1)
    assert not [ends for ends in parts if ends[0].startswith("oss0")]


def test_without_counters_of_servers_nothing_is_measured(cabled: FabricLinks) -> None:
    assert measured_storage(cabled, ("oss0", "oss1"), MeasuredRates(hcas={"ff": PortRate()})) is None


def test_storage_slows_who_comes_down_its_way(cabled: FabricLinks, pair: JobShape) -> None:
    """Reads take 40 % of the cables down to unit 0: a job between units 0 and 1 takes 1.4 times as long."""
    load = storage_load("storage", cabled, ("oss0", "oss1"), ("n0", "n1"), READ)
    assert load is not None
    running = RunningLoads.of(cabled.links, [load])
    across = interference(default_load("a", cabled, pair, ("n0", "n2")), running)
    assert across.slowdown == pytest.approx(0.4)
    elsewhere = interference(default_load("a", cabled, pair, ("n2", "n4")), running)
    assert (elsewhere.slowdown, elsewhere.neighbours) == (0.0, ())


def test_storage_on_a_fabric_of_its_own_meets_nobody() -> None:
    """The servers' leaves are cabled to a switch of their own: no route leads to the nodes' rails."""
    fabric = made()
    spine = next(guid for guid, switch in fabric.switches.items() if switch.description == "spine0")
    servers = {guid for guid, switch in fabric.switches.items() if switch.description in ("leaf6", "leaf7")}
    own = Switch(guid="00000000000000aa", description="storage-spine", ports=40)
    cables = tuple(
        moved(cable, spine, own.guid) if servers & {cable.a_guid, cable.b_guid} else cable for cable in fabric.cables
    )
    apart = numbered(replace(fabric, switches={**fabric.switches, own.guid: own}, cables=cables))
    assert storage_servers(apart) == ("oss0", "oss1")
    assert storage_load("storage", apart, ("oss0", "oss1"), ("n0", "n1"), READ) is None


def test_a_node_with_an_hca_for_storage_uses_that_one() -> None:
    """Node n0 has a third HCA on the servers' leaf: all of its reads come that way, over no cable between switches."""
    fabric = made()
    leaf = next(guid for guid, switch in fabric.switches.items() if switch.description == "leaf6")
    hca = Hca(guid="00000000000000bb", description="n0 mlx5_9", node="n0", device="mlx5_9")
    wire = Cable(a_guid=hca.guid, a_port=1, b_guid=leaf, b_port=40, width=4, speed="NDR", bytes_per_s=50e9)
    more = numbered(replace(fabric, hcas={**fabric.hcas, hca.guid: hca}, cables=(*fabric.cables, wire)))
    if "n0" not in more.elsewhere:
        pytest.skip("the third HCA counts as one on a rail here")
    load = storage_load("storage", more, ("oss0", "oss1"), ("n0",), READ)
    assert load is not None
    into = [more.ends(link) for link in load.links.tolist() if more.is_hca(link)]
    assert {ends[1] for ends in into if ends[0] == leaf} == {hca.guid}


def moved(cable: Cable, old: str, new: str) -> Cable:
    """The same cable with one end moved to another switch."""
    if cable.a_guid == old:
        return replace(cable, a_guid=new)
    return replace(cable, b_guid=new) if cable.b_guid == old else cable
