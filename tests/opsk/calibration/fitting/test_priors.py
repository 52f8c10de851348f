"""What an endless product reaches, beside the large ones that benchmarks measure."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from opsk.calibration.fitting.priors import LARGE_SIDE, PRIORS
from opsk.costmodel.machine import FP4_SIZE, FP8_SIZE

AMD_SIZE = PRIORS["gpu.cdna4.matmul_size"].centre


@pytest.mark.parametrize(
    ("name", "size", "measured"),
    [
        ("gpu.hopper.fp8_fraction", FP8_SIZE, 0.66),
        ("gpu.blackwell.fp4_fraction", FP4_SIZE, 0.51),
        ("gpu.cdna3.matmul_fraction", AMD_SIZE, 0.54),
        ("gpu.cdna4.fp8_fraction", AMD_SIZE, 0.49),
    ],
)
def test_a_large_product_reaches_what_was_measured(name: str, size: float, measured: float) -> None:
    """benchmarks/published/variants.csv: products of 4k to 16k on each side."""
    assert PRIORS[name].centre / (1 + 3 * size / LARGE_SIDE) == pytest.approx(measured, abs=1e-3)


def test_products_in_16_bits_on_nvidia_keep_the_share_of_large_ones() -> None:
    assert PRIORS["gpu.hopper.matmul_fraction"].centre == 0.7


def test_attention_on_amd_keeps_its_rate() -> None:
    """Its rates are shares of the peak, scaled by what products reach: both grow together (attention.toml)."""
    text = files("opsk.costmodel.efficiency").joinpath("attention.toml").read_text(encoding="utf-8")
    generations = tomllib.loads(text)["generations"]
    for name in ("cdna3", "cdna4"):
        assert generations[name]["product_share"] == pytest.approx(
            PRIORS[f"gpu.{name}.matmul_fraction"].centre, abs=1e-3
        )
