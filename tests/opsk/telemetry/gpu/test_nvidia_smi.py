"""Rows of ``nvidia-smi --query-gpu`` become samples; a driver may be missing, fail or hang."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.nvidia_smi import FIELDS, NvidiaSmi, parse_rows
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSample
from tests.fakes.advisor_process import eventually
from tests.fakes.nvidia_smi import H100, UUID, print_help, print_rows, write_program

MIB = 1 << 20


def read(*gpus: Mapping[str, str]) -> GpuReading:
    return parse_rows(print_rows(*gpus), FIELDS, 7.0)


def sample(**cells: str) -> GpuSample:
    """The sample of an H100 with these cells; ``__`` stands for the dot of a column."""
    (gpu,) = read({**H100, **{name.replace("__", "."): cell for name, cell in cells.items()}}).gpus
    return gpu


def source(printed: str, fields: Sequence[str] = FIELDS) -> NvidiaSmi:
    """A source whose program knows ``fields`` and prints ``printed`` when it is asked for values."""

    def run(command: Sequence[str], deadline_s: float) -> str:
        return print_help(fields) if command[-1] == "--help-query-gpu" else printed

    return NvidiaSmi(run=run, clock=lambda: 5.0)


def test_a_row_is_a_gpu() -> None:
    reading = read(H100)
    (gpu,) = reading.gpus
    assert (gpu.uuid, gpu.index, gpu.pci, gpu.model) == (UUID, 0, "0000:1a:00.0", "NVIDIA H100 80GB HBM3")
    assert (reading.driver, reading.read_at_s) == ("590.48.01", 7.0)


def test_quantities_are_in_si_units() -> None:
    gpu = sample(
        memory__total="81559", memory__used="479", memory__free="80000", utilization__gpu="11",
        clocks__current__sm="1980", temperature__gpu="41", clocks_event_reasons_counters__sw_power_cap="2500000",
    )  # fmt: skip
    assert gpu.memory is not None
    assert gpu.memory.total_bytes == 81559 * MIB
    assert gpu.utilisation == {"gpu": 0.11}
    assert gpu.clocks_hz == {"sm": 1.98e9}
    assert gpu.temperatures_c == {"gpu": 41.0}
    assert gpu.violation_s == {"sw_power_cap": 2.5}
    assert (gpu.power.average_w, gpu.power.instant_w, gpu.power.limit_w) == (80.0, 79.5, 700.0)


def test_memory_without_one_of_its_parts_is_unknown() -> None:
    assert sample(memory__total="81559", memory__used="[N/A]", memory__free="1").memory is None


@pytest.mark.parametrize(
    ("model", "is_mean"),
    [
        ("NVIDIA A100-SXM4-80GB", False),
        ("NVIDIA A800-SXM4-80GB", False),
        ("NVIDIA A30", False),
        ("Tesla V100-SXM2-32GB", False),
        ("NVIDIA A10G", True),
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA L40S", True),
        ("NVIDIA GB200", True),
    ],
)
def test_the_chip_decides_what_a_single_power_value_is(model: str, is_mean: bool) -> None:
    power = sample(
        name=model, power__draw="300.00", power__draw__average="[N/A]", power__draw__instant="[N/A]"
    ).power  # fmt: skip
    assert (power.average_w, power.instant_w) == ((300.0, None) if is_mean else (None, 300.0))


def test_reasons_for_low_clocks_are_those_that_the_gpu_can_give() -> None:
    gpu = sample(clocks_event_reasons__gpu_idle="Not Active", clocks_event_reasons__hw_slowdown="Active")
    assert gpu.throttle_reasons == {"hw_slowdown"}
    assert gpu.throttle_reasons_known == {"gpu_idle", "hw_slowdown"}
    assert sample().throttle_reasons is None


def test_memory_errors_have_kind_span_and_location() -> None:
    gpu = sample(
        ecc__errors__corrected__volatile__dram="3", ecc__errors__uncorrected__aggregate__sram__parity="1",
        ecc__errors__corrected__aggregate__device_memory="[Not Supported]",
    )  # fmt: skip
    assert [(count.kind, count.span, count.location, count.count) for count in gpu.ecc] == [
        ("corrected", "volatile", "dram", 3),
        ("uncorrected", "aggregate", "sram_parity", 1),
    ]


def test_remapped_rows_and_retired_pages_are_there_where_the_gpu_has_them() -> None:
    gpu = sample(remapped_rows__pending="Yes", remapped_rows__correctable="2", remapped_rows__histogram__max="2560")
    assert gpu.row_remap is not None
    assert (gpu.row_remap.corrected, gpu.row_remap.pending, gpu.row_remap.banks) == (2, True, {"max": 2560})
    assert gpu.retired_pages is None
    assert sample().row_remap is None


def test_the_place_in_an_nvlink_domain_and_its_health() -> None:
    fabric = sample(
        fabric__state="Completed", fabric__status="Success", fabric__clusterUuid="11111111-2222-3333-4444-555555555555",
        fabric__cliqueId="32766", fabric__health__bandwidth="Degraded", fabric__health__route_unhealthy="False",
        fabric__health__incorrect_configuration="Insufficient NVLinks",
    ).fabric  # fmt: skip
    assert fabric is not None
    assert (fabric.state, fabric.status, fabric.clique) == ("completed", "success", 32766)
    assert fabric.health == {"degraded_bandwidth": True, "route_unhealthy": False, "incorrect_configuration": True}
    assert fabric.configuration == "insufficient_nvlinks"
    none = sample(fabric__state="Completed", fabric__clusterUuid="00000000-0000-0000-0000-000000000000").fabric
    assert none is not None
    assert none.cluster_uuid is None


@pytest.mark.parametrize(
    ("cell", "action"),
    [("None", "none"), ("Reset", "gpu_reset"), ("Reboot", "node_reboot"), ("Drain P2P", "drain_p2p")],
)
def test_recovery_actions_have_one_name_whatever_the_driver(cell: str, action: str) -> None:
    assert sample(gpu_recovery_action=cell).recovery_action == action


def test_an_error_in_place_of_a_value_is_unreadable_and_no_number() -> None:
    reading = read({**H100, "temperature.gpu": "[Unknown Error]"})
    assert reading.gpus[0].temperatures_c == {}
    assert [(problem.gpu, problem.what, problem.error) for problem in reading.unreadable] == [
        (UUID, "temperature.gpu", "unknown error")
    ]


def test_a_lost_gpu_is_lost_and_the_others_stay() -> None:
    gone = {"index": "1", "pci.bus_id": "00000000:2B:00.0", "uuid": "[GPU is lost]", "name": "[GPU is lost]"}
    reading = read(H100, gone)
    assert [gpu.uuid for gpu in reading.gpus] == [UUID]
    assert [(gpu.uuid, gpu.index, gpu.pci, gpu.why) for gpu in reading.lost] == [
        (None, 1, "0000:2b:00.0", "gpu is lost")
    ]


@pytest.mark.parametrize(
    ("line", "index", "pci", "why"),
    [
        ("GPU 0000:0C:00.0: GPU is lost.  Reboot the system", -1, "0000:0c:00.0", "GPU is lost.  Reboot the system"),
        ("GPU0000:08:00.0: Unknown Error", -1, "0000:08:00.0", "Unknown Error"),
        ("GPU1: 0000:34:00.0: Unknown Error", 1, "0000:34:00.0", "Unknown Error"),
    ],
)
def test_a_gpu_without_a_handle_is_lost(line: str, index: int, pci: str, why: str) -> None:
    reading = parse_rows(f"Unable to determine the device handle for {line}\n{print_rows(H100)}", FIELDS)
    assert [gpu.uuid for gpu in reading.gpus] == [UUID]
    assert [(gpu.index, gpu.pci, gpu.why) for gpu in reading.lost] == [(index, pci, why)]


def test_a_driver_is_asked_only_for_the_columns_that_it_knows() -> None:
    asked: list[str] = []
    old = ("index", "uuid", "name")

    def run(command: Sequence[str], deadline_s: float) -> str:
        asked.append(command[1])
        return print_help(old) if command[1] == "--help-query-gpu" else print_rows(H100, fields=old)

    smi = NvidiaSmi(run=run)
    assert [gpu.uuid for gpu in (*smi.gpus().gpus, *smi.gpus().gpus)] == [UUID, UUID]
    assert asked == ["--help-query-gpu", "--query-gpu=index,uuid,name", "--query-gpu=index,uuid,name"]


def test_lost_gpus_alone_are_a_reading() -> None:
    (lost,) = source("Unable to determine the device handle for GPU0000:08:00.0: Unknown Error\n").gpus().lost
    assert lost.pci == "0000:08:00.0"


def test_a_node_without_gpus_is_no_failure() -> None:
    assert source("No devices were found\n").gpus().gpus == ()


def test_no_driver_is_not_a_failure_of_one() -> None:
    with pytest.raises(GpuDriverMissingError):
        source("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.").gpus()


@pytest.mark.parametrize(
    "printed", ["Failed to initialize NVML: Driver/library version mismatch", "Segmentation fault", ""]
)
def test_a_driver_that_fails_is_an_error(printed: str) -> None:
    with pytest.raises(TelemetryError) as caught:
        source(printed).gpus()
    assert not isinstance(caught.value, GpuDriverMissingError)


def test_the_program_is_run_and_a_missing_one_is_named(tmp_path: Path) -> None:
    program = write_program(tmp_path / "smi", print_rows(H100))
    assert [gpu.uuid for gpu in NvidiaSmi(str(program)).gpus().gpus] == [UUID]
    with pytest.raises(GpuDriverMissingError, match="not installed"):
        NvidiaSmi(str(tmp_path / "none")).gpus()


def test_a_program_that_hangs_is_left_and_not_started_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that waits for the driver in the kernel does not end by a signal; here none is sent to it."""
    program, started = tmp_path / "smi", tmp_path / "started"
    program.write_text(f"#!/bin/sh\necho $$ >>{started}\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _child: None)
    smi = NvidiaSmi(str(program), deadline_s=0.5)
    for _ in range(2):
        with pytest.raises(TelemetryError, match="not answered within"):
            smi.gpus()
    (pid,) = eventually(lambda: started.read_text().split() if started.exists() else [], bool)
    os.kill(int(pid), signal.SIGKILL)


@given(st.text(max_size=400), st.integers(0, 12))
def test_rubbish_never_raises_and_makes_no_gpu_without_a_uuid(text: str, columns: int) -> None:
    reading = parse_rows(text, FIELDS[:columns] or ("index",))
    assert all(gpu.uuid for gpu in reading.gpus)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["h100-80gb-hbm3__590.48.01", "h200-mig__590.48.01", "geforce-rtx-2080-super__595.71.05"]
)
def test_real_drivers_know_the_columns_and_their_rows_are_read(shared: Path, name: str) -> None:
    """Captures of nvidia-smi: the columns of ``--help-query-gpu``, and one row with all of them."""
    folder = shared / "data" / "real" / "nvidia_smi"
    text = (folder / f"linux-x86_64__nvidia-{name}.capture.txt").read_text(encoding="utf-8")
    listed = set(re.findall(r'^"([\w.]+)"', text, re.MULTILINE))
    unknown = {field for field in FIELDS if field not in listed}
    assert unknown == {
        f"ecc.errors.corrected.{span}.sram.{part}"
        for span in ("volatile", "aggregate")
        for part in ("parity", "secded")
    }
    header, row = re.findall(r"^timestamp, driver_version, .*\n.*$", text, re.MULTILINE)[0].split("\n")
    columns = [column.partition(" [")[0] for column in header.split(", ")]
    cells = dict(zip(columns, next(csv.reader([row], skipinitialspace=True)), strict=True))
    plain = {field: re.sub(r" (MiB|W|MHz|%|us)$", "", cell) for field, cell in cells.items()}
    (gpu,) = read(plain).gpus
    assert gpu.memory is not None
    assert gpu.memory.total_bytes > 8 * 1024 * MIB - 1
    assert gpu.clocks_max_hz["sm"] > 1e9
    assert gpu.power.limit_w in {250.0, 700.0}
    assert gpu.recovery_action == "none"
