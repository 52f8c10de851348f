"""Is Slurm's index of a GPU read from gres.conf, and are XIDs handed to whoever counts them?"""

from __future__ import annotations

import os
from pathlib import Path

from opsk.telemetry.gpu.nvml.source import XidEvent
from opsk_exporters.gpu.source import NvidiaDriver, SlurmOrderReader, services
from tests.fakes.gpus import gpu_uuid, h100, reading

# The board has its device files in another order than its PCI addresses.
NODE = reading(h100(0, minor=2), h100(1, minor=3), h100(2, minor=0), h100(3, minor=1))


def order(tmp_path: Path, text: str) -> dict[str, int]:
    path = tmp_path / "gres.conf"
    path.write_text(text)
    return dict(SlurmOrderReader((tmp_path / "nowhere", path), node="n1", procfs=tmp_path)(NODE))


def test_files_count_in_the_order_written(tmp_path: Path) -> None:
    found = order(tmp_path, "NodeName=n[1-4] Name=gpu Type=h100 File=/dev/nvidia[0-3]\n")
    assert found == {gpu_uuid(2): 0, gpu_uuid(3): 1, gpu_uuid(0): 2, gpu_uuid(1): 3}


def test_autodetect_by_nvml_counts_in_its_order(tmp_path: Path) -> None:
    assert order(tmp_path, "AutoDetect=nvml\n") == {gpu_uuid(index): index for index in range(4)}


def test_no_gres_conf_no_index(tmp_path: Path) -> None:
    assert SlurmOrderReader((tmp_path / "nowhere",), node="n1")(NODE) == {}


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "gres.conf"
    reader = SlurmOrderReader((path,), node="n1", procfs=tmp_path)
    path.write_text("AutoDetect=nvml\n")
    assert reader(NODE)[gpu_uuid(0)] == 0
    path.write_text("Name=gpu File=/dev/nvidia[0-3]\n")
    os.utime(path, (1, 1))
    assert reader(NODE)[gpu_uuid(0)] == 2


def test_xids_reach_every_sink() -> None:
    seen: list[tuple[object, ...]] = []

    class Sink:
        def record(self, *xid: object) -> None:
            seen.append(xid)

    driver = NvidiaDriver(nvml=object())
    driver._sinks = (Sink(), Sink())
    driver._forward(XidEvent(code=79, at_unix_s=1.5, gpu="GPU-a", pci="0000:1a:00.0"))
    assert seen == [("GPU-a", "0000:1a:00.0", 79, 1.5, "nvml")] * 2


def test_a_node_without_the_services_has_none(tmp_path: Path) -> None:
    assert services(tmp_path) == ()
