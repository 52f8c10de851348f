"""Does a written file say where each value comes from, and read back as what was written?"""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.calibration import (
    find_unit,
    format_origin,
    parse_field_meanings,
    render_efficiency_toml,
    round_value,
)
from opsk.calibration.fitting.fit import FittedParameter
from opsk.calibration.fitting.parameters import ParameterSpace
from opsk.costmodel.efficiency.cases import Case, SoftwareOffset
from opsk.costmodel.efficiency.default import parse_efficiency
from opsk.costmodel.efficiency.efficiency import (
    Efficiency,
    GpuEfficiency,
    LinkEfficiency,
    MemoryEfficiency,
    SoftwareEfficiency,
    Spread,
)
from opsk.workload.plan import Software

SPACE = ParameterSpace.over(["ampere", "hopper"], [Software.MEGATRON, Software.PYTORCH])
KNOWN = FittedParameter(
    name="links.nic_fraction",
    value=0.7,
    prior=0.85,
    standard_error=0.021,
    width=0.1,
    is_identified=True,
    runs=12,
    source="nccl-tests",
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
    found = _read(render_efficiency_toml(written, {}))
    assert found.fit == "made"
    assert set(found.gpu) == set(written.gpu)
    assert set(found.software) == set(written.software)
    pairs = [(found.gpu[name], written.gpu[name]) for name in written.gpu]
    pairs += [(found.software[name], written.software[name]) for name in written.software]
    for back, value in [*pairs, (found.links, written.links), (found.spread, written.spread)]:
        for item in fields(value):
            assert getattr(back, item.name) == round_value(getattr(value, item.name))


def test_what_is_not_fitted_is_not_written() -> None:
    assert "memory" not in tomllib.loads(render_efficiency_toml(Efficiency(), {}))


@given(st.text(max_size=60))
def test_any_description_survives(text: str) -> None:
    plain = text.encode("utf-8", "replace").decode()
    assert tomllib.loads(render_efficiency_toml(Efficiency(fit=plain), {}))["fit"] == plain


def test_every_value_says_its_unit_and_its_origin() -> None:
    text = render_efficiency_toml(Efficiency(), {"links.nic_fraction": format_origin(KNOWN)})
    values = [line for line in text.splitlines() if re.match(r"\w+ = \d", line)]
    assert values
    assert all(re.search(r"  # (ratio|s|elements); \S", line) for line in values)
    assert "nic_fraction = 0.85  # ratio; ± 0.021 from 12 runs, prior 0.85" in values


def test_a_value_that_the_runs_do_not_tell_names_the_source_of_its_prior() -> None:
    untold = replace(KNOWN, is_identified=False)
    assert format_origin(untold) == "prior: nccl-tests; 12 runs do not tell it"
    assert format_origin(replace(untold, runs=0)) == "prior: nccl-tests; no runs tell it"
    assert format_origin(replace(untold, runs=0), is_drawn=True) == "as the others share it; no runs tell it"


def test_what_was_measured_offsets_and_widths_read_back() -> None:
    case = Case(architecture="hopper", software="pytorch", kind="moe", precision="fp8")
    offset = SoftwareOffset(time_log=-0.05, time_log_sigma=0.1)
    written = replace(
        Efficiency(),
        fitted=frozenset({case}),
        fitted_memory=frozenset({case}),
        offset={"pytorch": offset, "": SoftwareOffset()},
        widths={"gpu.hopper.hbm_fraction": 0.25},
    )
    found = _read(render_efficiency_toml(written, {}))
    assert (found.fitted, found.fitted_memory, found.widths) == (written.fitted, written.fitted_memory, written.widths)
    assert found.offset == written.offset


@pytest.mark.parametrize("value_class", [GpuEfficiency, SoftwareEfficiency, LinkEfficiency, MemoryEfficiency, Spread])
def test_the_meaning_of_every_field_stands_in_its_class(value_class: type) -> None:
    found = parse_field_meanings(value_class)
    assert {item.name for item in fields(value_class)} == found.keys()
    assert all(found.values())


def test_units_follow_the_ending_of_a_name() -> None:
    assert [find_unit(name) for name in ("nic_hop_s", "context_bytes", "matmul_size", "nic_fraction")] == [
        "s",
        "bytes",
        "elements",
        "ratio",
    ]
