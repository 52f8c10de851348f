"""Do AMD's GPUs have the metrics of any GPU, and those that only they have?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk_exporters.core.collector import NoDataError
from opsk_exporters.gpu.amd import AmdGpuCollector, make
from tests.fakes.amdgpu_tree import AmdTree

ONE = "GPU-0000000000000001"
TWO = "GPU-0000000000000002"


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return AmdTree(tmp_path / "sys")


def shown(collector: AmdGpuCollector) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def test_names_and_units_are_those_of_any_gpu(tree: AmdTree) -> None:
    tree.add(0, 0x1A, unique_id="1")
    found = shown(make(tree.root))
    assert found["opsk_gpu_up", ONE] == 1.0
    assert found["opsk_gpu_utilization_ratio", ONE] == 0.87
    assert found["opsk_gpu_power_average_watts", ONE] == 412.0
    assert found["opsk_gpu_temperature_celsius", ONE, "junction"] == 64.0
    assert found["opsk_gpu_clock_hertz", "graphics", ONE] == 1.7e9
    assert found["opsk_gpu_pcie_replays_total", ONE] == 3.0
    assert found["opsk_amdgpu_ras_errors_total", "umc", "corrected", ONE] == 7.0
    assert found["opsk_amdgpu_asleep", ONE] == 0.0


def test_a_gpu_that_sleeps_has_its_facts_and_no_readings(tree: AmdTree) -> None:
    tree.add(0, 0x1A, unique_id="1", power__runtime_status="suspended")
    found = shown(make(tree.root))
    assert found["opsk_amdgpu_asleep", ONE] == 1.0
    assert found["opsk_gpu_up", ONE] == 1.0
    names = {name for name, *_ in found}
    assert names == {
        *("opsk_gpu_up", "opsk_gpu_unreadable_values", "opsk_gpu_info", "opsk_amdgpu_info", "opsk_amdgpu_asleep"),
    }


def test_a_gpu_that_is_gone_is_down_and_has_no_other_series(tree: AmdTree) -> None:
    tree.add(0, 0x1A, unique_id="1")
    tree.add(1, 0x1B, unique_id="2")
    collector = make(tree.root)
    shown(collector)
    (tree.root / "class/drm/card1").rename(tree.root / "class/drm/away")
    found = shown(collector)
    assert [key for key in found if TWO in key] == [("opsk_gpu_up", TWO)]
    assert found["opsk_gpu_up", TWO] == 0.0


def test_what_they_draw_together_is_told(tree: AmdTree) -> None:
    told: list[tuple[str, float | None, int]] = []
    tree.add(0, 0x1A, unique_id="1")
    tree.add(1, 0x1B, unique_id="2", hwmon__hwmon5__power1_average="0")
    tree.add(2, 0x1C, unique_id="3", power__runtime_status="suspended")
    shown(make(tree.root, lambda *what: told.append(what)))
    # The second die's power is in the first one's, and the third GPU sleeps.
    assert told == [("amd", 412.0, 3)]


def test_a_node_without_amd_gpus_has_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoDataError):
        make(tmp_path).collect()
