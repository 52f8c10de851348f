"""Is each measured value compared with the model's of the same GPU, and with no other GPU's?"""

from __future__ import annotations

import json

import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.errors import InputError
from opsk.hardware.catalog import cluster
from opsk.probe.comparison import compare, find_probe_cluster, summarise_ratios
from opsk.probe.document import ProbeDocument, parse_probe
from tests.fakes.probe_documents import probe_document


def document(**machine: object) -> ProbeDocument:
    values = probe_document()
    values["machine"] |= machine
    return parse_probe(json.dumps(values), origin="p.json")


def test_products_copies_and_collectives_are_compared() -> None:
    rows = compare(document(), cluster("superpod-h100"), DEFAULT)
    assert list(summarise_ratios(rows)) == [
        ("matmul", "bf16"), ("memory", "copy"), ("collectives", "all_reduce all 8"),
        ("collectives", "all_gather all 8"),
    ]  # fmt: skip
    assert all(0.2 < row.ratio < 5 for row in rows)


def test_a_small_product_is_expected_to_be_slower() -> None:
    """1 / (1 + s (1/m + 1/k + 1/n)) of the rate of a large one, as in `opsk.costmodel.time.layer_time`."""
    small, large = (row for row in compare(document(), cluster("superpod-h100"), DEFAULT) if row.part == "matmul")
    s = DEFAULT.for_gpu("hopper").matmul_size
    assert small.expected / large.expected == pytest.approx((1 + 3 * s / 8192) / (1 + 3 * s / 1024))


def test_a_gpu_without_a_site_is_looked_up() -> None:
    assert find_probe_cluster(document()).node.gpu.name == "h100-sxm"


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"gpu": "NVIDIA A100-SXM4-80GB"}, "measured on a100-sxm-80gb, and"),
        ({"device": "cpu"}, "measured on processors"),
        ({"gpu": "NVIDIA X9000"}, "X9000"),
    ],
)
def test_a_measurement_of_another_gpu_is_not_compared(machine: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        find_probe_cluster(document(**machine), cluster("superpod-h100"))
    assert message in refused.value.message
