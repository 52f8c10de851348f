"""Rates by hand from what the module cites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.machine import Machine, build_machine
from opsk.costmodel.table import PRECISIONS
from opsk.costmodel.time.host import host_link_bytes_per_s, host_optimizer_bytes_per_s
from opsk.hardware.catalog import cluster
from opsk.workload.plan import Precision

H100 = build_machine(cluster("superpod-h100"), PRECISIONS.index(Precision.BF16), DEFAULT)  # type: ignore[arg-type]


def with_link(bytes_per_s: float, gpus: float) -> Machine:
    return replace(H100, pcie_bytes_per_s=bytes_per_s, node_gpus=gpus)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("link", "reached"), [(15.75e9, 12.6e9), (31.5e9, 25.2e9), (63e9, 50.4e9), (450e9, 337.5e9), (225e9, 168.75e9)]
)
def test_copies_reach_a_share_of_the_link_of_their_host(link: float, reached: float):
    assert float(host_link_bytes_per_s(with_link(link, 8.0))) == pytest.approx(reached)


def test_the_gpus_of_a_node_share_its_memory():
    # 378 GB/s of a node with PCIe 4, of which 0.13 are reached: 1.2e9 parameters a second at 42 bytes
    assert float(host_optimizer_bytes_per_s(with_link(31.5e9, 8.0))) * 8 == pytest.approx(0.13 * 378e9)


def test_a_grace_has_its_own():
    assert float(host_optimizer_bytes_per_s(with_link(450e9, 4.0))) == pytest.approx(0.13 * 500e9)
    assert float(host_optimizer_bytes_per_s(with_link(225e9, 4.0))) == pytest.approx(0.13 * 250e9)
