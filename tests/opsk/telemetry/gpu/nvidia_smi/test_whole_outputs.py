"""Are whole outputs of nvidia-smi read: several queries, tables, GPUs that are lost, rubbish, and real captures?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.nvidia_smi import SmiProblem, read_nvidia_smi
from opsk.telemetry.gpu.samples import GpuSample
from tests.fakes.nvidia_smi_text import HEAD, IDENTITY, UUID, block

MIB = 1 << 20


def test_an_error_in_place_of_a_value_is_listed_and_no_number() -> None:
    text = HEAD.format(attached=1) + block(
        f"GPU UUID                              : {UUID}\nFan Speed                             : [Unknown Error]\n"
        "Temperature\n    GPU Current Temp                  : [Unknown Error]\n    Memory Current Temp : N/A"
    )
    (report,) = read_nvidia_smi(text).reports
    (gpu,) = report.reading.gpus
    assert gpu.temperatures_c == {}
    assert [(one.gpu, one.what) for one in report.reading.unreadable] == [
        (UUID, "Fan Speed"),
        (UUID, "GPU Current Temp"),
    ]


def test_a_lost_gpu_in_a_query_is_lost_and_the_others_stay() -> None:
    lost = block(
        "Product Name                          : GPU is lost\nGPU UUID                              : GPU is lost",
        "00000000:2B:00.0",
    )
    (report,) = read_nvidia_smi(HEAD.format(attached=2) + block(IDENTITY) + lost).reports
    assert [gpu.uuid for gpu in report.reading.gpus] == [UUID]
    (gone,) = report.reading.lost
    assert (gone.uuid, gone.index, gone.pci, gone.why) == (None, 1, "0000:2b:00.0", "gpu is lost")


@pytest.mark.parametrize(
    ("line", "index", "pci", "why"),
    [
        (
            "Unable to determine the device handle for GPU 0000:0C:00.0: GPU is lost.  Reboot the system",
            -1,
            "0000:0c:00.0",
            "GPU is lost.  Reboot the system",
        ),
        (
            "Unable to determine the device handle for GPU0000:08:00.0: Unknown Error",
            -1,
            "0000:08:00.0",
            "Unknown Error",
        ),
        (
            "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error",
            1,
            "0000:34:00.0",
            "Unknown Error",
        ),
        ("Unable to determine the device handle for GPU1: Unknown Error", 1, None, "Unknown Error"),
    ],
)
def test_a_gpu_without_a_handle_is_lost(line: str, index: int, pci: str | None, why: str) -> None:
    text = read_nvidia_smi(line + "\n")
    (gone,) = text.lost
    assert (gone.index, gone.pci, gone.why) == (index, pci, why)
    (report,) = read_nvidia_smi(HEAD.format(attached=2) + block(IDENTITY) + line).reports
    assert report.reading.lost == text.lost


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("No devices were found", SmiProblem.NO_DEVICES),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it runs.",
            SmiProblem.NO_DRIVER,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", SmiProblem.VERSION_MISMATCH),
        ("Failed to initialize NVML: Unknown Error", SmiProblem.INITIALISATION),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", SmiProblem.NO_LIBRARY),
        ("bash: line 1: nvidia-smi: command not found", SmiProblem.NO_PROGRAM),
    ],
)
def test_no_answer_is_said_with_its_reason(text: str, problem: SmiProblem) -> None:
    found = read_nvidia_smi(text + "\n")
    assert (found.problem, found.reports) == (problem, ())
    assert found.said


def test_several_queries_of_a_capture_are_several_reports() -> None:
    query = HEAD.format(attached=1) + block(IDENTITY)
    text = f"#####\n# idle\n#####\n{query}\n#####\n# load\n#####\n{query}\n\nsomething else\n"
    assert len(read_nvidia_smi(text).reports) == 2


def test_a_query_without_its_head_is_read() -> None:
    (report,) = read_nvidia_smi(block(IDENTITY) + block("Persistence Mode : Enabled", "00000001:00:00.0")).reports
    assert [gpu.pci for gpu in report.reading.gpus] == ["0000:1a:00.0", "0001:00:00.0"]
    assert report.attached is None


def test_a_table_is_read_like_a_query_with_and_without_units() -> None:
    header = (
        "index, name, pci.bus_id, uuid, memory.total [MiB], memory.used [MiB], memory.free [MiB], "
        "power.draw.instant [W], utilization.gpu [%], ecc.errors.uncorrected.volatile.dram, mig.mode.current, "
        "clocks.current.sm [MHz]"
    )
    rows = (
        f"4, NVIDIA H100, 00000000:83:00.0, {UUID}, 1000 MiB, 250 MiB, 750 MiB, 88.5 W, 7 %, 3, Disabled, 1980 MHz\n"
        f"5, NVIDIA H100, 00000000:84:00.0, GPU-2, 1000, 250, 750, 88.5, 7, [N/A], [Not Supported], [Unknown Error]\n"
    )
    (report,) = read_nvidia_smi(f"{header}\n{rows}").reports
    assert report.table
    first, second = report.reading.gpus
    assert (first.index, first.uuid, first.pci, first.mig_mode) == (4, UUID, "0000:83:00.0", False)
    assert [(c.location, c.count) for c in first.ecc] == [("dram", 3)]
    assert first.memory == second.memory
    assert first.power.instant_w == second.power.instant_w == 88.5
    assert first.utilisation == second.utilisation == {"gpu": 0.07}
    assert (first.clocks_hz, second.clocks_hz) == ({"sm": 1.98e9}, {})
    assert (second.ecc, second.mig_mode) == ((), None)


def test_tables_of_processes_are_no_gpus() -> None:
    text = "gpu_name, gpu_bus_id, gpu_uuid, pid, process_name\nNVIDIA, 00000000:83:00.0, GPU-1, 4, x\n"
    assert read_nvidia_smi(text).reports == ()


PIECES = [HEAD.format(attached=1), "GPU 00000000:1A:00.0\n", "    MIG Device\n", "        Index : 0\n", " : ", "N/A\n"]
PIECES += [
    IDENTITY,
    "    ECC Errors\n",
    "Unable to determine the device handle for GPU",
    "index, name, uuid\n",
    "\n",
    "\x1b[",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=30))
def test_no_mixture_of_pieces_breaks_the_reader(pieces: list[str]) -> None:
    for report in read_nvidia_smi("".join(pieces)).reports:
        for gpu in report.reading.gpus:
            assert (gpu.model or "").isprintable()


@pytest.mark.shared
def test_real_queries_are_read(shared: Path) -> None:
    """Expected numbers were read off the files by eye."""
    folder = shared / "data/real/nvidia_smi"

    def last(name: str) -> GpuSample:
        text = read_nvidia_smi((folder / name).read_text(encoding="utf-8"))
        return [report for report in text.reports if not report.table][-1].reading.gpus[0]

    h100 = last("linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.capture.txt")
    assert h100.memory is not None
    assert (h100.memory.used_bytes, h100.power.average_w, h100.power.instant_w) == (19818 * MIB, 629.45, 588.39)
    assert (len(h100.processes or ()), len(h100.nvlinks), h100.pcie.counters["replays"]) == (3, 18, 9)
    assert h100.nvlinks[0].bytes_per_s == 26.562e9
    h200 = last("linux-x86_64__nvidia-h200-mig__590.48.01.capture.txt")
    assert [device.profile for device in h200.mig] == ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]
    assert [len(device.processes or ()) for device in h200.mig] == [0, 3, 0, 0, 0]
    turing = last("linux-x86_64__nvidia-geforce-rtx-2080-super__595.71.05.capture.txt")
    assert (turing.architecture, turing.ecc, turing.fabric, turing.power.average_w) == ("turing", (), None, None)
    h800 = last("h800_nvidia-smi-q.txt")
    assert (h800.power.average_w, h800.temperature_limits_c["shutdown"], h800.processes) == (74.71, 92, ())
    pages = read_nvidia_smi((folder / "azure_orig_nvsmi8_output.txt").read_text(encoding="utf-8"))
    (report,) = pages.reports
    assert [gpu.pci for gpu in report.reading.gpus] == [f"000{n}:00:00.0" for n in range(1, 9)]
    assert all(gpu.retired_pages is not None and gpu.retired_pages.pending is False for gpu in report.reading.gpus)
    assert read_nvidia_smi((folder / "a10_lspci_nn.txt").read_text(encoding="utf-8")).reports == ()


@pytest.mark.shared
def test_tables_and_queries_of_one_capture_agree(shared: Path) -> None:
    for path in sorted((shared / "data/real/nvidia_smi").glob("*.capture.txt")):
        reports = read_nvidia_smi(path.read_text(encoding="utf-8")).reports
        queries = [report.reading.gpus[0] for report in reports if not report.table]
        tables = [report.reading.gpus[0] for report in reports if report.table]
        assert len(queries) == len(tables) == 2  # idle and under load
        for query, table in zip(queries, tables, strict=True):
            assert (query.uuid, query.pci, query.model) == (table.uuid, table.pci, table.model)
            assert query.memory == table.memory
            assert query.power.limit_w == table.power.limit_w
            assert {(c.kind, c.span, c.location): c.count for c in query.ecc}.items() <= {
                (c.kind, c.span, c.location): c.count for c in table.ecc
            }.items()
            if query.row_remap is not None:  # with MIG on, only the table has the banks
                assert query.row_remap == table.row_remap
