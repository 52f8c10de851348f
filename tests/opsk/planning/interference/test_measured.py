"""Two units of four nodes of two HCAs at 50 GB/s, one cable a leaf."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_hca_links, find_isl_cables
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import JobShape, LoadKind, default_load
from opsk.planning.interference.measured import MeasuredRates, PortRate, at_hcas, background, measured_load
from opsk.planning.interference.running_loads import RunningLoads

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
