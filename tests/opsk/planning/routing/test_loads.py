"""How long links are busy: HCA ports and cables, bytes conserved, rows apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.routing.hca_ports import build_ports
from opsk.planning.routing.loads import link_seconds, port_rates
from opsk.planning.routing.traffic import AXES, Flows

FABRIC = rail_optimized_fabric(nodes=6, hcas=2, leaves=4, spines=2)
RAILS = find_rails(FABRIC)
NODES = tuple(RAILS.attachments)
PORTS = build_ports(RAILS, NODES, 2)
ROUTES = build_routes(FABRIC, RAILS)


def messages(*entries: tuple[int, int, int, float]) -> dict[str, Flows]:
    """Return messages (row, source, target, bytes) of one axis, the others silent."""
    row, source, target, size = (
        (np.array(column) for column in zip(*entries, strict=True)) if entries else [np.empty(0, dtype=np.int64)] * 4
    )
    nothing = Flows.concatenate(iter(()))
    return dict.fromkeys(AXES, nothing) | {
        "dp": Flows(row=row, source=source, target=target, size_bytes=size.astype(np.float64))
    }


def test_a_message_keeps_both_ports_and_its_cables_busy() -> None:
    """From node n0 to n3 on rail 0: one port each, and half on each spine's cable up and down."""
    source, target = int(PORTS.port[0, 0]), int(PORTS.port[3, 0])
    rate = PORTS.bytes_per_s[source]
    found = link_seconds(messages((0, source, target, rate)), 1, PORTS, ROUTES)
    assert found.ports["dp"].sum() == pytest.approx(2.0)
    assert sorted(found.switches["dp"][0].tolist()) == pytest.approx([0.5, 0.5, 0.5, 0.5])
    assert found.axis_s()[0, AXES.index("dp")] == pytest.approx(1.0)


def test_under_one_leaf_only_the_ports_are_busy() -> None:
    source, target = int(PORTS.port[0, 1]), int(PORTS.port[1, 1])
    found = link_seconds(messages((0, source, target, 1e9)), 1, PORTS, ROUTES)
    assert found.links.size == 0
    assert found.busiest_switch_link()[0][0] == 0


def test_a_port_sends_and_receives_at_once() -> None:
    one, other = int(PORTS.port[0, 0]), int(PORTS.port[1, 0])
    rate = PORTS.bytes_per_s[one]
    found = link_seconds(messages((0, one, other, rate), (0, other, one, rate)), 1, PORTS, ROUTES)
    assert found.axis_s()[0, AXES.index("dp")] == pytest.approx(1.0)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 11), st.integers(0, 11), st.floats(1, 1e12)),
        min_size=1,
        max_size=20,
    )
)
def test_load_is_conserved_and_rows_do_not_mix(entries: list[tuple[int, int, int, float]]) -> None:
    """What leaves ports is what enters them; what leaves a leaf upwards is what crosses; each row as if alone."""
    found = link_seconds(messages(*entries), 3, PORTS, ROUTES)
    rate = port_rates(PORTS)
    sent, received = np.split(found.ports["dp"] * np.tile(rate, 2), 2, axis=1)
    for row in range(3):
        mine = [entry for entry in entries if entry[0] == row]
        total = sum(size for *_, size in mine)
        crossing = sum(size for _, a, b, size in mine if PORTS.leaf[a] != PORTS.leaf[b])
        assert sent[row].sum() == pytest.approx(total)
        assert received[row].sum() == pytest.approx(total)
        up = sum(
            seconds * ROUTES.rates[link]
            for link, seconds in zip(found.links.tolist(), found.switches["dp"][row].tolist(), strict=True)
            if ROUTES.ends(link)[0] in RAILS.leaves
        )
        assert up == pytest.approx(crossing)
        alone = link_seconds(messages(*[(0, a, b, size) for _, a, b, size in mine]), 1, PORTS, ROUTES)
        assert alone.axis_s()[0] == pytest.approx(found.axis_s()[row])
