"""Is a file of efficiencies taken as it stands, and refused with everything that is wrong in it?"""

from __future__ import annotations

import pytest

from opsk.costmodel.efficiency.default import DEFAULT, MAX_BYTES, parse_efficiency
from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency, SoftwareEfficiency
from opsk.errors import ConfigError
from opsk.workload.plan import Software


def parse(text: str) -> Efficiency:
    return parse_efficiency(text, origin="site.toml", base=Efficiency())


def test_an_empty_file_is_the_base() -> None:
    assert parse("") == Efficiency()
    assert parse_efficiency("", origin="site.toml") == DEFAULT


def test_a_stated_value_replaces_one_and_leaves_its_neighbours() -> None:
    found = parse("[gpu.hopper]\nmatmul_fraction = 0.81\n[software.megatron-core]\nkernel_gap_s = 4e-6\n")
    assert found.for_gpu("hopper") == GpuEfficiency(matmul_fraction=0.81)
    assert found.for_gpu("ampere") == GpuEfficiency()
    assert found.software[Software.MEGATRON_CORE] == SoftwareEfficiency(kernel_gap_s=4e-6)


def test_other_stands_for_every_chip_generation_without_a_table() -> None:
    found = parse("[gpu.other]\nhbm_fraction = 0.6\n[gpu.hopper]\nmatmul_fraction = 0.8\n")
    assert found.for_gpu("cdna3").hbm_fraction == 0.6
    assert found.for_gpu("hopper").hbm_fraction == 0.6  # what its own table leaves out


def test_what_was_fitted_is_told() -> None:
    assert parse('fit = "34 runs of our own"').fit == "34 runs of our own"


def test_zero_is_taken_where_nothing_may_be_lost() -> None:
    found = parse("[software.pytorch]\nkernel_gap_s = 0.0\nfsdp_overlap = 0.0\nstraggler_fraction = 0.0\n")
    assert found.software[Software.PYTORCH].fsdp_overlap == 0.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[gpu.hopper]\nmatmul_fraction = 1.2", "gpu.hopper.matmul_fraction: .*less than or equal to 1, not 1.2"),
        ("[gpu.hopper]\nmatmul_fraction = 0.0", "gpu.hopper.matmul_fraction: .*greater than 0"),
        ("[gpu.hopper]\nmatmul = 0.5", "gpu.hopper.matmul: there is no such field"),
        ("[gpu.HOPPER]\nmatmul_fraction = 0.5", "gpu.HOPPER: .*match pattern"),
        ("[software.horovod]", "software.horovod: .*'megatron-core'"),
        ("[software.pytorch]\nkernel_gap_s = -1e-6", "software.pytorch.kernel_gap_s: .*greater than or equal to 0"),
        ("[links]\nnic_fraction = true", "links.nic_fraction: .*valid number"),
        ("[links]\nnic_fraction = nan", "links.nic_fraction: .*finite number"),
        ("[spread]\ntime_log_sigma = 0", "spread.time_log_sigma: .*greater than 0"),
        ("[memory]\ncontext_bytes = inf", "memory.context_bytes: .*finite number"),
        ("gpu = 3", "gpu: .*dictionary"),
        ("colour = 3", "colour: there is no such field"),
        ("fit = 3", "fit: .*string"),
        ("[gpu", "Expected"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"^site.toml: .*{complaint}"):
        parse(text)


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("colour = 3\n[links]\nnic_fraction = 2.0\nhb_fraction = -1.0\n[gpu.hopper]\nmatmul = 1.0\n")
    for place in ("colour", "links.nic_fraction", "links.hb_fraction", "gpu.hopper.matmul"):
        assert place in caught.value.message


def test_a_file_of_another_kind_is_refused_by_its_size() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        parse(" " * (MAX_BYTES + 1))


def test_keys_of_experts_in_an_older_file_are_ignored_and_said() -> None:
    text = "[software.megatron-core]\nkernel_gap_s = 1e-6\nexpert_fraction = 0.4\nmoe_gap_s = 1e-3\n"
    found = parse_efficiency(text, origin="old.toml")
    assert found.software[Software.MEGATRON_CORE].kernel_gap_s == 1e-6
    assert found.fit.endswith("ignored, as experts are predicted from their shapes: expert_fraction, moe_gap_s")
    assert "ignored" not in DEFAULT.fit
