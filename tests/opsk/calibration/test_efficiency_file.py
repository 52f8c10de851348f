"""Does a written file say where each value comes from, and read back as what was written?"""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.efficiency_file import efficiency_toml, meanings, origin_of, rounded, unit_of
from opsk.calibration.fit import FittedParameter
from opsk.calibration.parameters import ParameterSpace
from opsk.costmodel.efficiency import (
    Efficiency,
    GpuEfficiency,
    LinkEfficiency,
    MemoryEfficiency,
    SoftwareEfficiency,
    Spread,
)
from opsk.costmodel.shipped import parse_efficiency
from opsk.workload.plan import Software

SPACE = ParameterSpace.over(["ampere", "hopper"], [Software.MEGATRON, Software.PYTORCH])
KNOWN = FittedParameter(
    name="links.nic_fraction", value=0.7, prior=0.85, standard_error=0.021, is_identified=True, runs=12
)


def _read(text: str) -> Efficiency:
    return parse_efficiency(text, origin="written", base=Efficiency())


@given(st.lists(st.floats(-2, 2), min_size=len(SPACE), max_size=len(SPACE)))
def test_a_written_fit_reads_back_to_four_digits(moves: list[float]) -> None:
    low, high = SPACE.bounds()
    vector = [
        min(max(centre + move * 0.2, least), most)
        for centre, move, least, most in zip(SPACE.centre(), moves, low, high, strict=True)
    ]
    written = replace(SPACE.efficiency(vector), fit="made")
    found = _read(efficiency_toml(written, {}))
    assert found.fit == "made"
    assert set(found.gpu) == set(written.gpu)
    assert set(found.software) == set(written.software)
    pairs = [(found.gpu[name], written.gpu[name]) for name in written.gpu]
    pairs += [(found.software[name], written.software[name]) for name in written.software]
    for back, value in [*pairs, (found.links, written.links), (found.spread, written.spread)]:
        for item in fields(value):
            assert getattr(back, item.name) == rounded(getattr(value, item.name))


def test_what_is_not_fitted_is_not_written() -> None:
    assert "memory" not in tomllib.loads(efficiency_toml(Efficiency(), {}))


@given(st.text(max_size=60))
def test_any_description_survives(text: str) -> None:
    plain = text.encode("utf-8", "replace").decode()
    assert tomllib.loads(efficiency_toml(Efficiency(fit=plain), {}))["fit"] == plain


def test_every_value_says_its_unit_and_its_origin() -> None:
    text = efficiency_toml(Efficiency(), {"links.nic_fraction": origin_of(KNOWN)})
    values = [line for line in text.splitlines() if re.match(r"\w+ = \d", line)]
    assert values
    assert all(re.search(r"  # (ratio|s|elements); \S", line) for line in values)
    assert "nic_fraction = 0.85  # ratio; ± 0.021 from 12 runs, prior 0.85" in values


def test_a_value_that_the_runs_do_not_tell_says_so() -> None:
    assert origin_of(replace(KNOWN, is_identified=False)) == "12 runs do not tell it apart from the prior 0.85"
    assert origin_of(replace(KNOWN, runs=0)) == "no runs of its own: drawn to what the others share; prior 0.85"


@pytest.mark.parametrize("value_class", [GpuEfficiency, SoftwareEfficiency, LinkEfficiency, MemoryEfficiency, Spread])
def test_the_meaning_of_every_field_stands_in_its_class(value_class: type) -> None:
    found = meanings(value_class)
    assert {item.name for item in fields(value_class)} == found.keys()
    assert all(found.values())


def test_units_follow_the_ending_of_a_name() -> None:
    assert [unit_of(name) for name in ("nic_hop_s", "context_bytes", "matmul_size", "nic_fraction")] == [
        "s",
        "bytes",
        "elements",
        "ratio",
    ]
