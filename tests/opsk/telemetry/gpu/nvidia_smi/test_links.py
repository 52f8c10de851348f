"""Are lists of GPUs and states, errors and far ends of NVLinks read from each of nvidia-smi's answers?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.telemetry.gpu.nvidia_smi import read_links, read_list

GPU = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"


def test_states_and_speeds() -> None:
    (gpu,) = read_links(
        GPU + "\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n         Link 2: 26.562 GB/s\n\t Link 3: N/A\n"
    )
    assert [(link.link, link.state, link.bytes_per_s) for link in gpu.links] == [
        (0, "active", 25e9),
        (1, "inactive", None),
        (2, "active", 26.562e9),
        (3, None, None),
    ]
    assert (gpu.index, gpu.model, gpu.uuid[:5]) == (0, "NVIDIA A100-SXM4-80GB", "GPU-1")


def test_answers_about_one_gpu_are_joined() -> None:
    state = GPU + "\t Link 0: 25 GB/s\n"
    errors = GPU + "\t Link 0: Replay Errors: 1\n\t Link 0: Recovery Errors: 2\n\t Link 0: CRC Errors: 3\n\n"
    ends = GPU + "\t Link 0: Remote Device 00000000:C5:00.0: Link 8\n"
    data = GPU + "\t Link 0: Data Tx: 10 KiB\n\t Link 0: Data Rx: 20 KiB\n"
    (gpu,) = read_links(state + errors + ends + data)
    (link,) = gpu.links
    assert (link.state, link.bytes_per_s, link.remote_pci, link.remote_link) == ("active", 25e9, "0000:c5:00.0", 8)
    assert (link.transmitted_bytes, link.received_bytes) == (10240, 20480)
    assert link.errors == {"replay": 1, "recovery": 2, "crc": 3}


def test_errors_of_nvlink_5_have_their_names_and_rates_are_not_counts() -> None:
    lines = "\t Link 0: Malformed packet Errors: 1\n\t Link 0: Symbol Errors: 7\n\t Link 0: Symbol BER: 15e-255\n"
    (gpu,) = read_links(GPU + lines)
    assert gpu.links[0].errors == {"malformed_packet": 1, "symbol": 7}


@pytest.mark.parametrize(
    "why",
    [
        "Nvlink queries are not supported for Devices in MIG mode",
        "NVML: Unable to retrieve NVLink information as all links are inActive",
    ],
)
def test_a_gpu_without_links_says_why(why: str) -> None:
    (gpu,) = read_links(f"{GPU}{why}\n")
    assert gpu.links == ()
    assert gpu.unsupported == why


def test_equal_masked_uuids_of_several_gpus_stay_apart() -> None:
    masked = "GPU {}: NVIDIA H100 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n\t Link 0: {} GB/s\n"
    gpus = read_links(masked.format(0, 25) + masked.format(1, 50))
    assert [(gpu.index, gpu.links[0].bytes_per_s) for gpu in gpus] == [(0, 25e9), (1, 50e9)]


def test_mig_devices_of_a_list() -> None:
    (gpu,) = read_list(GPU + "  MIG 1c.3g.71gb  Device  0: (UUID: MIG-1)\n  MIG 2g.35gb     Device  1: (UUID: MIG-2)\n")
    assert [(mig.index, mig.profile, mig.uuid) for mig in gpu.mig] == [
        (0, "1c.3g.71gb", "MIG-1"),
        (1, "2g.35gb", "MIG-2"),
    ]


def test_text_of_other_programs_gives_nothing() -> None:
    assert read_links("Link 0: 25 GB/s\n06:00.0 3D controller [0302]: NVIDIA Corporation\n") == ()


@pytest.mark.shared
def test_real_states(shared: Path) -> None:
    folder = shared / "data/real/nvidia_smi"
    gpus = read_links((folder / "a100_nvlink_status.txt").read_text(encoding="utf-8"))
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert {len(gpu.links) for gpu in gpus} == {12}
    assert {link.bytes_per_s for gpu in gpus for link in gpu.links} == {25e9}
    (single,) = read_links((folder / "azure_good_nvlink_status.txt").read_text(encoding="utf-8"))
    assert (single.index, len(single.links)) == (7, 12)
