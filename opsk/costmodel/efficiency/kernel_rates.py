"""Loads the rates that attention kernels reach on each chip generation from ``attention.toml``, as columns."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from opsk.costmodel.table import ATTENTIONS, SOFTWARE, FloatColumn
from opsk.workload.plan import Attention, Software

IDEAL_GENERATION = "ideal"
"""A chip whose attention is as fast as its products, whatever the size: for closed forms."""
_MEGATRON = (Software.MEGATRON, Software.MEGATRON_CORE)
_OTHER_GENERATION = "ampere"
"""Generation whose kernels are used for a chip that the table does not have."""


@lru_cache(maxsize=1)
def generations() -> tuple[str, ...]:
    """Return the chip generations that the table has, in the order of `Machine.generation`."""
    return tuple(_document()["generations"])


def find_generation(architecture: str) -> int:
    """Return the code of a chip generation, or of the default one where the table does not have it."""
    names = generations()
    return names.index(architecture if architecture in names else _OTHER_GENERATION)


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("attention.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def load_kernel_rates() -> FloatColumn:
    """Return rates over those of products, shape (9, generations, kernels, software).

    Forward at three widths, backward at three widths, tokens of half the rate forward and backward, multiprocessors.
    """
    rates = np.empty((9, len(generations()), len(ATTENTIONS), len(SOFTWARE)))
    for index, generation in enumerate(_document()["generations"].values()):
        for code, kernel in enumerate(ATTENTIONS):
            for family, software in enumerate(SOFTWARE):
                rates[:, index, code, family] = _row(generation, kernel, software)
    return rates


def _row(generation: Mapping[str, Any], kernel: Attention, software: Software) -> list[float]:
    """Return the rates of a kernel, or of the generation's default kernel where it does not have that one."""
    kernels = generation["kernels"]
    usual = generation.get("engine", generation["usual"]) if software in _MEGATRON else generation["usual"]
    name = kernel.value if kernel.value in kernels else usual
    rates, share = kernels[name], generation["product_share"]
    lengths = [rates["forward_tokens"], rates["backward_tokens"]]
    return [*(rate / share for rate in (*rates["forward"], *rates["backward"])), *lengths, generation["units"]]
