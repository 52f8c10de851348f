"""The table of attention kernels is whole, and says of every chip of the catalogue what runs there."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.costmodel.efficiency.kernel_rates import find_generation, generations, load_kernel_rates
from opsk.costmodel.machine import USUAL_SHARES
from opsk.costmodel.table import ATTENTIONS, SOFTWARE
from opsk.hardware.catalog import gpu, names

USUAL = {
    "volta": "v100-sxm2-16gb", "turing": "t4", "ampere": "a100-sxm-80gb", "ada": "l40s", "hopper": "h100-sxm",
    "blackwell": "b200-sxm", "blackwell-ultra": "b300-sxm", "blackwell-rtx": "rtx-pro-6000", "cdna2": "mi250x-gcd",
    "cdna3": "mi300x", "cdna4": "mi355x",
}  # fmt: skip


def test_every_kernel_has_rates_on_every_chip() -> None:
    rates = load_kernel_rates()
    assert rates.shape == (9, len(generations()), len(ATTENTIONS), len(SOFTWARE))
    assert np.isfinite(rates).all()
    assert (rates[:6] > 0).all()
    assert (rates[:6] < 1.35).all()  # no kernel outruns products by more than the short runs of its benchmark


def test_every_generation_of_the_catalogue_is_in_the_table() -> None:
    assert {gpu(name).architecture for name in names("gpu")} <= set(generations())


def test_an_unknown_chip_is_taken_for_an_a100() -> None:
    assert find_generation("rubin") == find_generation("ampere")


@pytest.mark.parametrize("generation", USUAL_SHARES)
def test_usual_shares_are_those_of_the_catalogue(generation: str) -> None:
    share = gpu(USUAL[generation]).sustained_share
    kinds = {"16-bit" if name in ("bf16", "fp16") else name: value for name, value in share.items()}
    assert kinds == dict(USUAL_SHARES[generation])
