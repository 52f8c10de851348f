"""Small networks of DGX H100 that tests change."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import node
from opsk.hardware.spec import NodeSpec
from opsk.network_design.point import Point, Wiring
from opsk.units import gbit_per_s


@pytest.fixture
def dgx() -> NodeSpec:
    return node("dgx-h100")


@pytest.fixture
def point() -> Point:
    return Point(
        wiring=Wiring.RAIL_OPTIMIZED,
        gpus=512,
        hb_domain=8,
        gpus_per_node=8,
        nics=8,
        radix=64,
        nic_bytes_per_s=gbit_per_s(400.0),
        hb_bytes_per_s=gbit_per_s(3600.0),
        global_batch=512,
    )
