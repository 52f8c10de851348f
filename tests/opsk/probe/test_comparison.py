"""Is each measured value compared with the model's of the same GPU, and with no other GPU's?"""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files

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
        ("matmul", "bf16"), ("attention", "flash"), ("memory", "copy"), ("collectives", "all_reduce all 8"),
        ("collectives", "all_gather all 8"),
    ]  # fmt: skip
    assert all(0.2 < row.ratio < 5 for row in rows)


def test_a_small_product_is_expected_to_be_slower() -> None:
    """1 / (1 + s (1/m + 1/k + 1/n)) of the rate of a large one, as in `opsk.costmodel.time.layer_time`."""
    small, large = (row for row in compare(document(), cluster("superpod-h100"), DEFAULT) if row.part == "matmul")
    s = DEFAULT.for_gpu("hopper").matmul_size
    assert small.expected / large.expected == pytest.approx((1 + 3 * s / 8192) / (1 + 3 * s / 1024))


def test_attention_is_expected_as_in_a_layer() -> None:
    """FlashAttention-2 on Hopper, heads of 128: forward f s / (s + 450), backward b s / (s + 900) of the products' rate
    over 0.70, 2.5 times the arithmetic (opsk/costmodel/efficiency/attention.toml)."""
    spec = cluster("superpod-h100")
    (row,) = (row for row in compare(document(), spec, DEFAULT) if row.part == "attention")
    rates = tomllib.loads(files("opsk.costmodel.efficiency").joinpath("attention.toml").read_text(encoding="utf-8"))
    kernel, gpu = rates["generations"]["hopper"]["kernels"]["flash2"], DEFAULT.for_gpu("hopper")
    forward = kernel["forward"][1] * 8192 / (8192 + kernel["forward_tokens"])
    backward = kernel["backward"][1] * 8192 / (8192 + kernel["backward_tokens"])
    share = 3.5 / (1 / forward + 2.5 / backward) * gpu.attention_factor / 0.70
    # the rate that products reach on this GPU: what a long product is expected to reach without its edges
    (large,) = (row for row in compare(document(), spec, DEFAULT) if row.label == "8192 x 8192 x 8192")
    products = large.expected * (1 + 3 * gpu.matmul_size / 8192)
    assert row.expected == pytest.approx(share * products, rel=1e-6)


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
