"""What is left of a reading when GPUs, the driver or the rights go?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.lab.machine.gpus import gpu_uuid, make_h100
from opsk.lab.machine.nvml_standin import StandInState
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_h100_node
from tests.fakes.nvml_reader import NvmlReader


@pytest.fixture
def node(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path, make_h100_node(4))


@pytest.fixture
def reader(node: Nvml) -> Iterator[NvmlReader]:
    with NvmlReader(node) as reading:
        yield reading


def uuids(reading: dict) -> list[str]:  # type: ignore[type-arg]
    return [gpu["uuid"] for gpu in reading["gpus"]]


def lost(node: Nvml, *indices: int) -> StandInState:
    return make_h100_node(4).with_keys({f"gpu.{index}.lost": 1 for index in indices})


def test_a_lost_gpu_stays_visible_and_the_others_go_on(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(lost(node, 2))
    for _ in range(3):
        reading = reader.read()
        assert uuids(reading) == [gpu_uuid(0), gpu_uuid(1), gpu_uuid(3)]
        (gone,) = reading["lost"]
        assert (gone["uuid"], gone["index"], gone["pci"], gone["minor"]) == (gpu_uuid(2), 2, "0000:52:00.0", 2)
        assert gone["why"] == "gpu_is_lost"


def test_a_lost_gpu_is_lost_after_nvml_was_begun_anew_too(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(lost(node, 2))
    reader.read()
    # NVML is begun anew now and then while a GPU is lost; it gives no handle then.
    reading = reader.read(later_s=61)
    assert [gone["uuid"] for gone in reading["lost"]] == [gpu_uuid(2)]
    assert len(reading["gpus"]) == 3


def test_a_gpu_that_comes_back_is_read_again(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(lost(node, 2))
    reader.read()
    node.write(make_h100_node(4))
    reading = reader.read(later_s=61)
    assert reading["lost"] == []
    assert len(reading["gpus"]) == 4


def test_a_gpu_that_fell_off_the_bus_is_read_as_soon_as_it_answers_there(node: Nvml, tmp_path: Path) -> None:
    config = tmp_path / "bus" / "pci" / "devices" / "0000:52:00.0" / "config"
    config.parent.mkdir(parents=True)
    config.write_bytes(b"\xde\x10" + bytes(62))
    with NvmlReader(node, sysfs=tmp_path) as reader:
        node.write(make_h100_node(4))
        reader.read()
        node.write(lost(node, 2))
        config.write_bytes(b"\xff" * 64)
        for _ in range(20):
            assert reader.read(later_s=30)["lost"], "by now NVML is begun anew only every ten minutes"
        node.write(make_h100_node(4))
        assert reader.read(later_s=2)["lost"]
        config.write_bytes(b"\xde\x10" + bytes(62))
        assert reader.read(later_s=2)["lost"] == []


def test_a_gpu_that_is_no_longer_listed_is_lost(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    # The second of four is gone: those behind it move up.
    node.write(StandInState(gpus=(make_h100(0), make_h100(2), make_h100(3))))
    reading = reader.read()
    assert [(gpu["uuid"], gpu["index"]) for gpu in reading["gpus"]] == [
        (gpu_uuid(0), 0),
        (gpu_uuid(2), 1),
        (gpu_uuid(3), 2),
    ]
    assert [(gone["uuid"], gone["why"]) for gone in reading["lost"]] == [(gpu_uuid(1), "not_listed")]


def test_a_gpu_that_never_answered_is_known_by_its_index(node: Nvml, reader: NvmlReader) -> None:
    node.write(lost(node, 1))
    reading = reader.read()
    assert len(reading["gpus"]) == 3
    assert [(gone["uuid"], gone["index"], gone["why"]) for gone in reading["lost"]] == [(None, 1, "gpu_is_lost")]


def test_all_gpus_lost_is_a_reading_without_gpus(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(lost(node, 0, 1, 2, 3))
    reading = reader.read()
    assert reading["gpus"] == []
    assert len(reading["lost"]) == 4


def test_a_driver_reload_is_survived_within_one_reading(node: Nvml, reader: NvmlReader) -> None:
    assert reader.read()["gpus"][0]["power"]["energy_j"] == 1000
    gpus = (make_h100(0).with_keys({"energy_mj": 5000}), *make_h100_node(4).gpus[1:])
    node.write(replace(make_h100_node(4), gpus=gpus, driver_version="575.51.03").with_keys({"driver.generation": 1}))
    reading = reader.read()
    # The counter begins anew with the driver, and shows it.
    assert reading["driver"] == "575.51.03"
    assert reading["gpus"][0]["power"]["energy_j"] == 5
    assert reading["lost"] == []


def test_a_driver_that_is_unloaded_and_comes_back(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(make_h100_node(4).with_keys({"driver.loaded": 0}))
    for _ in range(2):
        answer = reader.read()
        assert answer["error"] == "GpuDriverMissingError"
        assert "not loaded" in answer["message"]
    node.write(make_h100_node(4).with_keys({"driver.generation": 1}))
    assert len(reader.read()["gpus"]) == 4


def test_a_driver_of_another_version_than_the_library_is_named(node: Nvml, reader: NvmlReader) -> None:
    node.write(make_h100_node(4).with_keys({"error.nvmlInitWithFlags": "!LIB_RM_VERSION_MISMATCH"}))
    answer = reader.read()
    assert answer["error"] == "TelemetryError"
    assert "different versions" in answer["message"]
    assert "restart the exporter" in answer["hint"]


def test_a_question_without_right_costs_its_answer_only(node: Nvml, reader: NvmlReader) -> None:
    node.write(
        make_h100_node(4).with_keys(
            {
                "error.nvmlGpmSampleGet": "!NO_PERMISSION",
                "gpu.1.error.nvmlDeviceGetComputeRunningProcesses": "!NO_PERMISSION",
            }
        )
    )
    reader.read()
    reading = reader.read()
    assert len(reading["gpus"]) == 4
    assert reading["gpus"][0]["activity"] is None
    assert reading["gpus"][1]["processes"] is None
    assert reading["gpus"][0]["processes"] == []
    faults = {(fault["gpu"], fault["what"], fault["error"]) for fault in reading["unreadable"]}
    assert faults == {(gpu_uuid(index), "gpm", "no_permission") for index in range(4)} | {
        (gpu_uuid(1), "processes", "no_permission")
    }


def test_a_gpu_that_wants_a_reset_is_not_up(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(make_h100_node(4).with_keys({"gpu.3.error.all": "!RESET_REQUIRED"}))
    reading = reader.read()
    assert len(reading["gpus"]) == 3
    assert [(gone["uuid"], gone["why"]) for gone in reading["lost"]] == [(gpu_uuid(3), "reset_required")]


def test_a_node_without_gpus_has_an_empty_reading(node: Nvml, reader: NvmlReader) -> None:
    node.write(StandInState())
    reading = reader.read()
    assert (reading["gpus"], reading["lost"]) == ([], [])


def test_nothing_is_ever_printed(node: Nvml, reader: NvmlReader) -> None:
    reader.read()
    node.write(lost(node, 2).with_keys({"error.nvmlDeviceGetFieldValues": "!UNKNOWN"}))
    reader.read()
    reader.process.kill()
    printed, complaint = reader.process.communicate()
    assert (printed, complaint) == ("", "")
